"""The one thread that talks to the state file, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from persys_agent.state.file import StateFile

__all__ = ["StateThread"]

T = TypeVar("T")


class StateThread:
    """A context: inside it, calls reach the file one after the other, in the order given.

    Entering raises ``StateError``. A call that is given up is carried out nevertheless.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="persys-state")
        self._file: StateFile | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            self._file = await loop.run_in_executor(self._thread, StateFile, self._path)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._file is not None:
            await self.call(StateFile.close)
            self._file = None
        self._thread.shutdown(wait=False)

    async def call(self, work: Callable[[StateFile], T]) -> T:
        """The result of ``work``, done in the thread."""
        file = self._file
        assert file is not None, "the state is not open"
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, file)
