"""``InlineState``: the state file without a thread, for tests on virtual time.

``die_at`` plays a process that is killed at its n-th write: that write and every later one never
come to an end, and nothing of them is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from persys_agent.state.file import StateFile
from persys_agent.state.lock import StateError

__all__ = ["InlineState"]

T = TypeVar("T")


class InlineState:
    """Implements ``state.store.Caller`` on the event loop itself, which waits meanwhile.

    ``calls`` counts; ``fails`` plays a disk that is full; ``died`` is set when the process is to be
    taken for dead.
    """

    def __init__(self, path: Path, *, die_at: int | None = None) -> None:
        self.calls = 0
        self.fails = False
        self.died = asyncio.Event()
        self._path = path
        self._die_at = die_at

    async def __aenter__(self) -> Self:
        self._file = StateFile(self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._file.close()

    async def call(self, work: Callable[[StateFile], T]) -> T:
        """The result of ``work``; others have had a turn, as with a thread."""
        self.calls += 1
        await asyncio.sleep(0)
        if self._die_at is not None and self.calls >= self._die_at:
            self.died.set()
            await asyncio.Event().wait()
        if self.fails:
            raise StateError("the disk is full")
        return work(self._file)
