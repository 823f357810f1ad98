"""What was begun is undone where it fails, the caller's end included."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog

from persys_agent.storage.port import StorageFailedError

__all__ = ["undone_on_failure"]


@asynccontextmanager
async def undone_on_failure(undo: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call ``undo`` where the block raises. An undo that fails as well is logged: what went wrong
    first is what the caller is told."""
    try:
        yield
    except BaseException:
        try:
            await undo()
        except StorageFailedError as error:
            structlog.get_logger().warning("left behind by a failed attach", reason=str(error))
        raise
