"""The one thread that talks to the state file, so that the event loop never waits for a disk.

Decided here: that calls which wait at the same moment are written to disk together, and that each
caller is answered only after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self, TypeVar

from attrs import frozen

from persys_agent.state.file import StateFile
from persys_agent.state.lock import StateError

__all__ = ["StateThread"]

T = TypeVar("T")
_MOST_TOGETHER = 256


@frozen
class _Call:
    work: Callable[[StateFile], Any]
    answer: asyncio.Future[Any]


class StateThread:
    """A context: inside it, calls reach the file one after the other, in the order given.

    Entering raises ``StateError``. A call that is given up is carried out nevertheless.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        Thread(target=self._serve, name="persys-state", daemon=True).start()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._calls.put(None)  # it may be opening still: then it closes again
            raise
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_open = False
        self._calls.put(None)
        await self._ended

    async def call(self, work: Callable[[StateFile], T]) -> T:
        """The result of ``work``, done in the thread."""
        if not self._is_open:
            raise StateError(f"the state {self._path} is closed")
        answer: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(_Call(work, answer))
        return await answer

    def _serve(self) -> None:
        try:
            file = StateFile(self._path)
        except Exception as error:
            self._tell([(self._opened, error)])
            return
        self._tell([(self._opened, None)])
        while self._carry_out(file, self._waiting()):
            pass
        file.close()
        self._tell([(self._ended, None)])

    def _carry_out(self, file: StateFile, waiting: Sequence[_Call | None]) -> bool:
        """Answer what waits; false where that was the last."""
        calls = [call for call in waiting if call is not None]
        if calls:
            results = file.together([call.work for call in calls])
            answers = [call.answer for call in calls]
            self._tell(list(zip(answers, results, strict=True)))
        return len(calls) == len(waiting)

    def _waiting(self) -> list[_Call | None]:
        """Every call that waits now, at least one; later ones come in the next turn."""
        found = [self._calls.get()]
        with suppress(Empty):
            while found[-1] is not None and len(found) < _MOST_TOGETHER:
                found.append(self._calls.get_nowait())
        return found

    def _tell(self, answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
        with suppress(RuntimeError):  # the event loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(_deliver, answers)


def _deliver(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    """Runs in the event loop; a waiter that has gone away is not told."""
    for answer, result in answers:
        if answer.done():
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)
