"""The one thread that talks to SQLite, so that the event loop never waits for a disk.

Decided here: that transactions which wait at the same moment are written to disk together, and
that each waiter is answered only after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen

from persys_adapters.kv.contract import Txn, TxnResult
from persys_adapters.sqlite.file import SqliteFile
from persys_core.ports.cluster_store import StoreUnavailableError

__all__ = ["SqlThread"]

_T = TypeVar("_T")
MAX_GROUP = 256


@frozen
class _Call(Generic[_T]):
    """Something to do with the file, and whom to tell."""

    work: Callable[[SqliteFile], _T]
    answer: asyncio.Future[_T]


@frozen
class _Write:
    """A transaction, and whom to tell."""

    txn: Txn
    answer: asyncio.Future[TxnResult]


_Job: TypeAlias = _Call[Any] | _Write | None
_Answer: TypeAlias = tuple[asyncio.Future[Any], Any, BaseException | None]


class SqlThread:
    """Opens the file in its thread; use it from one event loop.

    A daemon thread: a process that ends without ``stop`` loses what it has not been told of.
    """

    def __init__(self, opening: Callable[[], SqliteFile]) -> None:
        self._opening = opening
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._serve, name="persys-sqlite", daemon=True)
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._is_stopped = False

    async def start(self) -> None:
        """Open the file. Raises StoreUnavailableError; a cancelled one is closed again."""
        self._thread.start()
        try:
            await self._opened
        except asyncio.CancelledError:
            self._finish()
            raise

    async def stop(self) -> None:
        """Finish what was asked for, close the file and end; a second call only waits."""
        self._finish()
        await asyncio.shield(self._ended)

    async def call(self, work: Callable[[SqliteFile], _T]) -> _T:
        """The result of ``work``, done in the thread."""
        answer: asyncio.Future[_T] = self._loop.create_future()
        self._submit(_Call(work, answer))
        return await answer

    def call_later(self, work: Callable[[SqliteFile], None]) -> None:
        """Have ``work`` done in the thread without waiting for it; nothing where it has ended."""
        if not self._is_stopped:
            nobody: asyncio.Future[None] = self._loop.create_future()
            nobody.cancel()
            self._jobs.put(_Call(work, nobody))

    async def write(self, txn: Txn) -> TxnResult:
        """The result of ``txn``, once it is on disk."""
        answer: asyncio.Future[TxnResult] = self._loop.create_future()
        self._submit(_Write(txn, answer))
        return await answer

    def _finish(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._jobs.put(None)

    def _submit(self, job: _Job) -> None:
        if self._is_stopped:
            raise StoreUnavailableError("the store is closed: open it again")
        self._jobs.put(job)

    def _serve(self) -> None:
        try:
            file = self._opening()
        except BaseException as error:
            self._tell([(self._opened, None, error), (self._ended, None, None)])
            return
        self._tell([(self._opened, None, None)])
        try:
            self._work(file)
        finally:
            self._tell([_answered(self._ended, file.close)])

    def _work(self, file: SqliteFile) -> None:
        while True:
            for are_writes, group in groupby(self._waiting(), _is_write):
                jobs = list(group)
                if are_writes:
                    self._tell(_written(file, jobs))
                    continue
                for job in jobs:
                    if job is None:
                        return
                    self._tell([_called(file, job)])

    def _waiting(self) -> list[_Job]:
        """Every job that waits now, at least one; later ones come in the next turn."""
        jobs = [self._jobs.get()]
        with suppress(Empty):
            while len(jobs) < MAX_GROUP:
                jobs.append(self._jobs.get_nowait())
        return jobs

    def _tell(self, answers: Sequence[_Answer]) -> None:
        with suppress(RuntimeError):  # the event loop has ended: nobody waits any more
            self._loop.call_soon_threadsafe(_deliver, answers)


def _is_write(job: _Job) -> bool:
    return isinstance(job, _Write)


def _written(file: SqliteFile, jobs: Sequence[_Job]) -> list[_Answer]:
    writes = [job for job in jobs if isinstance(job, _Write)]
    try:
        results = file.apply([write.txn for write in writes])
    except Exception as error:
        # Whatever it is, it goes to the waiters: this thread must live on.
        return [(write.answer, None, error) for write in writes]
    return [(write.answer, result, None) for write, result in zip(writes, results, strict=True)]


def _called(file: SqliteFile, job: _Job) -> _Answer:
    assert isinstance(job, _Call)
    return _answered(job.answer, lambda: job.work(file))


def _answered(answer: asyncio.Future[Any], work: Callable[[], object]) -> _Answer:
    try:
        return answer, work(), None
    except Exception as error:
        return answer, None, error


def _deliver(answers: Sequence[_Answer]) -> None:
    """Runs in the event loop; a waiter that has gone away is not told."""
    for answer, result, error in answers:
        if answer.done():
            continue
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)
