"""Whatever is wrong with the file is said in words that help, and nothing is half done."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persys_adapters.kv.contract import Txn
from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_adapters.sqlite.damage import problem_of
from persys_adapters.sqlite.file import SqliteFile
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import (
    Key,
    Put,
    Resync,
    StoreUnavailableError,
    WatchBatch,
)
from persys_core.testing.cluster_store_backend import (
    commit_of,
    committed,
    next_event,
    put,
    read,
    watching,
)

KEY, VALUE = Key.allocation("n1"), Allocation("n1")


async def refused(path: Path) -> str:
    """The text with which opening ``path`` fails."""
    with pytest.raises(StoreUnavailableError) as caught:
        await SqliteClusterStore.open(path)
    return str(caught.value)


@pytest.mark.asyncio
async def test_a_second_process_is_told_the_first(tmp_path: Path) -> None:
    """A file in use is refused with the holder's process id, and free once that one closed."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    text = await refused(path)
    assert f"in use by process {os.getpid()}" in text
    await store.aclose()
    again = await SqliteClusterStore.open(path)
    await again.aclose()


@pytest.mark.asyncio
async def test_folders_are_made(tmp_path: Path) -> None:
    """A store in a folder that is not there yet is made together with it."""
    store = await SqliteClusterStore.open(tmp_path / "data" / "deep" / "store.db")
    await put(store, KEY, VALUE)
    await store.aclose()


@pytest.mark.asyncio
async def test_no_database_is_told(tmp_path: Path) -> None:
    """A file that is something else is left alone."""
    path = tmp_path / "store.db"
    path.write_bytes(b"this is a text, and a long one at that. " * 100)
    before = path.read_bytes()
    assert "no SQLite database" in await refused(path)
    assert path.read_bytes() == before


@pytest.mark.asyncio
async def test_a_foreign_database_is_told(tmp_path: Path) -> None:
    """A database of another program is refused, not filled with our tables."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    assert "of another program" in await refused(path)


@pytest.mark.asyncio
async def test_a_newer_format_is_told(tmp_path: Path) -> None:
    """A file that a newer release wrote is refused with both versions."""
    path = tmp_path / "store.db"
    await (await SqliteClusterStore.open(path)).aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    text = await refused(path)
    assert "format 99" in text
    assert "up to 1" in text


@pytest.mark.asyncio
async def test_damage_is_told(tmp_path: Path) -> None:
    """A damaged file says what to do, and its store is not read as an empty one (E04)."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    await committed(
        store,
        commit_of(*(Put(Key.allocation(f"n{each}"), Allocation(f"n{each}")) for each in range(99))),
    )
    await store.aclose()
    raw = bytearray(path.read_bytes())
    raw[4096:] = os.urandom(len(raw) - 4096)
    path.write_bytes(raw)
    with pytest.raises(StoreUnavailableError, match="restore a backup"):
        await _snapshot_of(path)


@pytest.mark.asyncio
async def test_a_folder_is_told(tmp_path: Path) -> None:
    """A path that cannot be opened says to look at the folder."""
    (tmp_path / "store.db").mkdir()
    assert "check that its folder is there" in await refused(tmp_path / "store.db")
    (tmp_path / "file").write_text("")
    assert "check that its folder is there" in await refused(tmp_path / "file" / "store.db")


@pytest.mark.asyncio
async def test_a_removed_file_stops_the_store(tmp_path: Path) -> None:
    """After the file was removed nothing is acknowledged into the void."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    await put(store, KEY, VALUE)
    path.unlink()
    with pytest.raises(StoreUnavailableError, match="removed or replaced"):
        await store.commit(commit_of(Put(KEY, VALUE)))
    with pytest.raises(StoreUnavailableError, match="removed or replaced"):
        await store.probe()
    await store.aclose()


def test_a_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    """Without space nothing of the group is written; with space again the next one is."""
    connections: list[sqlite3.Connection] = []

    def keeping(path: Path) -> sqlite3.Connection:
        connections.append(sqlite3.connect(path, isolation_level=None))
        return connections[-1]

    file = SqliteFile(tmp_path / "store.db", 1000, keeping)
    (pages,) = connections[0].execute("PRAGMA page_count").fetchone()
    connections[0].execute(f"PRAGMA max_page_count = {pages}")
    large = Txn(puts=((b"/nodes/large", b"x" * 50_000),))
    with pytest.raises(StoreUnavailableError, match="no space is left"):
        file.apply([Txn(puts=((b"/nodes/small", b"x"),)), large])
    assert file.revision == 0
    assert file.get([b"/nodes/small"]).entries == {}
    connections[0].execute("PRAGMA max_page_count = 100000")
    assert [result.revision for result in file.apply([large])] == [1]
    file.close()


@pytest.mark.asyncio
async def test_history_is_bounded(tmp_path: Path) -> None:
    """Changes older than the history are gone: a watcher from there gets a Resync (E01)."""
    store = await SqliteClusterStore.open(tmp_path / "store.db", history=10)
    for _ in range(30):
        await put(store, KEY, VALUE)
    async with watching(store, 19) as watch:
        assert isinstance(await next_event(watch), Resync)
    async with watching(store, 20) as watch:
        event = await next_event(watch)
        assert isinstance(event, WatchBatch)
        assert event.revision == 21
    await store.aclose()


@pytest.mark.asyncio
async def test_history_survives_a_restart(tmp_path: Path) -> None:
    """A watcher may go on after a restart where it was; what was forgotten stays so."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    await put(store, KEY, VALUE)
    await store.forget_history()
    await put(store, KEY, VALUE)
    await store.aclose()
    store = await SqliteClusterStore.open(path)
    async with watching(store, 1) as watch:
        event = await next_event(watch)
        assert isinstance(event, WatchBatch)
        assert event.revision == 2
    async with watching(store, 0) as watch:
        assert isinstance(await next_event(watch), Resync)
    await store.aclose()


@pytest.mark.asyncio
async def test_a_cancelled_opening_gives_the_file_back(tmp_path: Path) -> None:
    """Whoever gives up opening leaves no lock behind."""
    path = tmp_path / "store.db"
    opening = asyncio.create_task(SqliteClusterStore.open(path))
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    async with asyncio.timeout(30):
        store = await _opened_when_free(path)
    assert await read(store, KEY) is None
    await store.aclose()


async def _opened_when_free(path: Path) -> SqliteClusterStore:
    while True:
        try:
            return await SqliteClusterStore.open(path)
        except StoreUnavailableError:
            await asyncio.sleep(0.001)


async def _snapshot_of(path: Path) -> None:
    store = await SqliteClusterStore.open(path)
    try:
        await store.snapshot()
    finally:
        await store.aclose()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_damage_in_the_middle_is_told_at_once(tmp_path: Path) -> None:
    """A damaged page stops the opening, with what to do; looking at the file says the same."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    for each in range(300):
        await put(store, Key.allocation(f"n{each}"), Allocation(f"n{each}"))
    await store.aclose()
    assert problem_of(path) == ""
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 8192 * 4096
    raw[middle : middle + 3000] = b"\xa5" * 3000
    path.write_bytes(raw)
    text = await refused(path)
    assert "restore a backup" in text
    assert str(path) in text
    assert problem_of(path) == text
    assert path.read_bytes() == raw


@pytest.mark.asyncio
async def test_a_file_in_use_can_be_looked_at(tmp_path: Path) -> None:
    """Looking disturbs no server, and leaves no file behind once it has gone."""
    path = tmp_path / "store.db"
    store = await SqliteClusterStore.open(path)
    await put(store, KEY, VALUE)
    assert problem_of(path) == ""
    await put(store, KEY, VALUE)
    await store.aclose()
    before = sorted(os.listdir(tmp_path))
    assert problem_of(path) == ""
    assert sorted(os.listdir(tmp_path)) == before


def modes(folder: Path) -> dict[str, int]:
    """The permissions of everything in ``folder``."""
    return {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}


@pytest.mark.asyncio
async def test_the_files_are_for_their_owner_only(tmp_path: Path) -> None:
    """A04: secrets lie in them, so nobody else may read them, nor the folders that are made."""
    folder = tmp_path / "made" / "too"
    before = os.umask(0o022)
    try:
        store = await SqliteClusterStore.open(folder / "store.db")
        await put(store, KEY, VALUE)
        names = {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"}
        assert modes(folder) == dict.fromkeys(names, 0o600)
        assert modes(tmp_path) == {"made": 0o700}
        assert modes(folder.parent) == {"too": 0o700}
        await store.aclose()
    finally:
        os.umask(before)


@pytest.mark.asyncio
async def test_a_file_that_is_too_open_is_closed_to_others(tmp_path: Path) -> None:
    """One that an earlier release made is tightened when it is opened; its folder is not ours."""
    path = tmp_path / "store.db"
    await (await SqliteClusterStore.open(path)).aclose()
    os.chmod(path, 0o644)
    os.chmod(tmp_path, 0o755)
    await (await SqliteClusterStore.open(path)).aclose()
    assert modes(tmp_path)["store.db"] == 0o600
    assert modes(tmp_path.parent)[tmp_path.name] == 0o755
