"""How what was begun is undone, although whoever waits for that is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

__all__ = ["finished"]


async def finished(undoing: Coroutine[Any, Any, None]) -> None:
    """See ``undoing`` through, even where the waiter is cancelled once more."""
    task = asyncio.ensure_future(undoing)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
