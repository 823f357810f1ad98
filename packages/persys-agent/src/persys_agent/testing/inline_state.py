"""``InlineState``: the state file without a thread, for tests on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from persys_agent.state.file import StateFile

__all__ = ["InlineState"]

T = TypeVar("T")


class InlineState:
    """Implements ``state.store.Caller`` on the event loop itself, which waits meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def __aenter__(self) -> Self:
        self._file = StateFile(self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()

    async def call(self, work: Callable[[StateFile], T]) -> T:
        """The result of ``work``; others have had a turn, as with a thread."""
        await asyncio.sleep(0)
        return work(self._file)
