"""Commits that wait together share one write to disk, and the event loop never waits for it."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from persys_adapters.kv.contract import Applied, Compare, Refused, Txn
from persys_adapters.sqlite.file import SqliteFile, connect
from persys_adapters.sqlite.kv import SqliteKv
from persys_adapters.sqlite.thread import SqlThread
from persys_core.ports.cluster_store import AmbiguousCommitError, StoreUnavailableError

Hook = Callable[[str], None]


class HookedConnection(sqlite3.Connection):
    """Calls ``hook`` with each statement before it is run."""

    hook: Hook

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        self.hook(sql)
        return super().execute(sql, *args)


def hooked(hook: Hook, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, factory=HookedConnection)
    connection.hook = hook
    return connection


@asynccontextmanager
async def opened(path: Path, hook: Hook | None = None) -> AsyncIterator[SqliteKv]:
    connecting = connect if hook is None else partial(hooked, hook)
    thread = SqlThread(partial(SqliteFile, path, 1000, connecting))
    await thread.start()
    kv = SqliteKv(thread)
    try:
        yield kv
    finally:
        await kv.aclose()


def put(number: int) -> Txn:
    return Txn(puts=((f"/nodes/n{number}".encode(), b"{}"),))


def disk_error(sql: str) -> None:
    if sql == "COMMIT":
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error


@pytest.mark.asyncio
async def test_waiting_commits_share_a_write(tmp_path: Path) -> None:
    """A hundred commits that wait for a slow disk are written together, each with a revision."""
    commits: list[str] = []
    gate = threading.Event()

    def slow(sql: str) -> None:
        if sql == "COMMIT":
            gate.wait(30)
            commits.append(sql)

    async with opened(tmp_path / "store.db", slow) as kv:
        writing = [asyncio.create_task(kv.txn(put(number))) for number in range(100)]
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*writing)
    assert [result.revision for result in results] == list(range(1, 101))
    assert len(commits) <= 3


@pytest.mark.asyncio
async def test_nothing_is_told_before_the_disk(tmp_path: Path) -> None:
    """While the disk has not answered, no commit is acknowledged and the event loop runs on."""
    gate, reached = threading.Event(), threading.Event()

    def stuck(sql: str) -> None:
        if sql == "COMMIT":
            reached.set()
            gate.wait(30)

    async with opened(tmp_path / "store.db", stuck) as kv:
        writing = asyncio.create_task(kv.txn(put(1)))
        assert await asyncio.to_thread(reached.wait, 30)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not writing.done()
        gate.set()
        assert await writing == Applied(1)


@pytest.mark.asyncio
async def test_a_group_sees_its_own_members(tmp_path: Path) -> None:
    """Of two creations of one key that share a write, one is done and the other refused."""
    create = Txn((Compare(b"/nodes/n1", mod_revision=0),), ((b"/nodes/n1", b"{}"),))
    async with opened(tmp_path / "store.db") as kv:
        first, second = await asyncio.gather(kv.txn(create), kv.txn(create))
        assert first == Applied(1)
        assert isinstance(second, Refused)
        assert second.entries[b"/nodes/n1"].mod_revision == 1


@pytest.mark.asyncio
async def test_a_failing_disk_is_ambiguous(tmp_path: Path) -> None:
    """An I/O error at the write to disk leaves the outcome open, and stops the store for good."""
    async with opened(tmp_path / "store.db", disk_error) as kv:
        with pytest.raises(AmbiguousCommitError, match="its disk failed"):
            await kv.txn(put(1))
        with pytest.raises(StoreUnavailableError, match="start again"):
            await kv.get([b"/nodes/n1"])


@pytest.mark.asyncio
async def test_an_error_fails_the_whole_group(tmp_path: Path) -> None:
    """Where SQLite fails in the middle, none of the group is done, and the next write works."""
    failing = ["INSERT INTO entries"]

    def once(sql: str) -> None:
        if failing and sql.startswith(failing[0]):
            failing.clear()
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorname = "SQLITE_FULL"
            raise error

    async with opened(tmp_path / "store.db", once) as kv:
        outcomes = await asyncio.gather(kv.txn(put(1)), kv.txn(put(2)), return_exceptions=True)
        failed = [each for each in outcomes if isinstance(each, StoreUnavailableError)]
        assert failed
        done = await kv.txn(put(3))
        assert done.revision == 3 - len(failed)


@pytest.mark.asyncio
async def test_a_cancelled_commit_disturbs_nobody(tmp_path: Path) -> None:
    """A waiter that goes away leaves the others of its group their answers."""
    async with opened(tmp_path / "store.db") as kv:
        doomed = asyncio.create_task(kv.txn(put(1)))
        other = asyncio.create_task(kv.txn(put(2)))
        await asyncio.sleep(0)
        doomed.cancel()
        assert isinstance(await other, Applied)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_listing_lets_commits_through(tmp_path: Path) -> None:
    """While a listing is read page by page, commits are done and it does not show them."""
    async with opened(tmp_path / "store.db") as kv:
        await asyncio.gather(*(kv.txn(put(number)) for number in range(1500)))
        seen = 0
        async for page in kv.pages([b"/nodes/"]):
            assert page.revision == 1500
            seen += len(page.entries)
            await kv.txn(put(2000 + seen))
        assert seen == 1500


@pytest.mark.asyncio
async def test_closing_finishes_and_ends(tmp_path: Path) -> None:
    """What was asked for before is done, watchers are ended, later calls say so."""
    async with opened(tmp_path / "store.db") as kv:
        watch = kv.watch([b"/nodes/"], 0)
        writing = asyncio.create_task(kv.txn(put(1)))
        await anext(watch)
        waiting = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        await kv.aclose()
        assert await writing == Applied(1)
        with pytest.raises(StoreUnavailableError, match="closed"):
            await waiting
        with pytest.raises(StoreUnavailableError, match="closed"):
            await kv.txn(put(2))
