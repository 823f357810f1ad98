from __future__ import annotations

import asyncio
import sqlite3
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.runtimes.port import AttachedVolume
from persys_agent.state.file import StateFile
from persys_agent.state.lock import StateError
from persys_agent.state.records import Condition, Sight, Task, TaskKind, TaskState, Workload
from persys_agent.state.store import AgentState
from persys_agent.state.thread import StateThread
from persys_core.model.observation import AgentState as Observed
from persys_core.model.resources import Resources
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadType

AT = datetime(2026, 5, 4, 3, 2, 1, 500_000, tzinfo=UTC)
FULL = Workload(
    id="w1",
    type=WorkloadType.VM,
    revision_id="r1",
    spec_hash="h",
    desired_state=DesiredState.DELETED,
    request='{"id": "w1"}',
    requested=Resources.of(cpu_millicores=5, disk_gb=7),
    created_at=AT,
    updated_at=AT,
    is_settled=True,
    has_ended=True,
    delete_volumes=True,
    attached=(AttachedVolume(ManagedVolume("v", size_gb=3, read_only=True), device="/dev/x"),),
    condition=Condition("CODE", "text", AT, True, "delete"),
    sight=Sight(Observed.FAILED, AT),
)
TASK = Task(7, "apply-w1-1", TaskKind.APPLY, "w1", AT, "{}", "r1", False, TaskState.FAILED, "e", AT)


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    """Every field of a workload, a task and the rest survives."""
    file = StateFile(tmp_path / "state.db")
    file.save(workloads=[FULL], tasks=[TASK], meta=[("k", "v")])
    file.close()
    file = StateFile(tmp_path / "state.db")
    contents = file.load()
    file.close()
    assert contents.workloads == (FULL,)
    assert contents.tasks == (TASK,)
    assert contents.meta == {"k": "v"}


def test_a_second_agent_is_told_who_has_the_file(tmp_path: Path) -> None:
    """The error names the process, and the file works on for its holder."""
    path = tmp_path / "state.db"
    file = StateFile(path)
    with pytest.raises(StateError, match=r"in use by process \d+"):
        StateFile(path)
    file.save(meta=[("a", "b")])
    file.close()
    StateFile(path).close()


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It holds the secrets of workloads (A41)."""
    path = tmp_path / "deep" / "state.db"
    file = StateFile(path)
    file.save(workloads=[FULL])
    for place in path.parent.iterdir():
        assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0, place
    file.close()


def test_a_newer_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """An older agent neither reads nor changes it, and says what to do."""
    path = tmp_path / "state.db"
    StateFile(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match="written by a newer agent"):
        StateFile(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0 and junk"])
def test_a_damaged_file_is_never_deleted(tmp_path: Path, content: bytes) -> None:
    """The agent does not start, and the file is as it was (A2)."""
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"state\.db"):
        StateFile(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """A path that was mistaken costs nobody a table."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (name)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match=r"of another program \(it has songs\)"):
        StateFile(path)
    assert path.read_bytes() == before


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["newest_epoch", "kinds_used"])
async def test_notes_that_make_no_sense_end_the_start(tmp_path: Path, key: str) -> None:
    """A sentence, and no traceback."""
    path = tmp_path / "state.db"
    file = StateFile(path)
    file.save(meta=[(key, "7x")])
    file.close()
    async with StateThread(path) as thread:
        with pytest.raises(StateError, match="make no sense"):
            await AgentState(thread).load()


def test_a_place_where_no_state_can_be_is_told(tmp_path: Path) -> None:
    """A folder in its place, or a file in the way of its folder: a sentence, and no traceback."""
    (tmp_path / "state.db").mkdir()
    with pytest.raises(StateError, match=r"state\.db is no usable database"):
        StateFile(tmp_path / "state.db")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "state.db", tmp_path / "file" / "x" / "state.db"):
        with pytest.raises(StateError, match=r"cannot be kept.*set agent_data_dir"):
            StateFile(path)


def test_a_record_that_makes_no_sense_is_left_alone(tmp_path: Path) -> None:
    """The error says so; nothing is dropped silently."""
    path = tmp_path / "state.db"
    file = StateFile(path)
    file.save(workloads=[FULL])
    file.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE workloads SET type = 'submarine'")
    connection.close()
    file = StateFile(path)
    with pytest.raises(StateError, match="makes no sense"):
        file.load()
    file.close()


def test_a_save_is_all_or_nothing(tmp_path: Path) -> None:
    """A write that fails in the middle leaves what was before."""
    file = StateFile(tmp_path / "state.db")
    file.save(workloads=[FULL])
    with pytest.raises(StateError):
        file.save(without=["w1"], meta=[("k", None)])  # type: ignore[list-item]
    assert file.load().workloads == (FULL,)
    file.close()


@pytest.mark.asyncio
async def test_the_epoch_and_the_kinds_only_grow(tmp_path: Path) -> None:
    """They survive a restart, so that a fenced scheduler stays fenced."""
    for _ in range(2):
        async with StateThread(tmp_path / "state.db") as thread:
            state = AgentState(thread)
            await state.load()
            await state.raise_epoch(7)
            await state.raise_epoch(3)
            await state.add_kinds(frozenset({WorkloadType.VM}))
            await state.save(FULL)
    async with StateThread(tmp_path / "state.db") as thread:
        state = AgentState(thread)
        await state.load()
        assert state.newest_epoch == 7
        assert state.kinds_used == {WorkloadType.VM}
        assert list(state) == [FULL]
        await state.drop("w1")
        assert state.get("w1") is None


@pytest.mark.asyncio
async def test_a_file_that_is_taken_fails_the_start(tmp_path: Path) -> None:
    """The thread hands the error on and ends."""
    held = StateFile(tmp_path / "state.db")
    with pytest.raises(StateError, match="in use"):
        async with StateThread(tmp_path / "state.db"):
            pass
    held.close()


def test_of_works_written_together_each_fails_alone(tmp_path: Path) -> None:
    """What was asked for at the same moment shares one wait for the disk, and nothing else."""

    def good(file: StateFile) -> str:
        file.save(meta=[("good", "1")])
        return "done"

    def bad(file: StateFile) -> str:
        file.save(meta=[("half", "1"), ("k", None)])  # type: ignore[list-item]
        return "done"

    file = StateFile(tmp_path / "state.db")
    first, broken, last = file.together([good, bad, lambda file: len(file.load().meta)])
    assert (first, last) == ("done", 1)
    assert isinstance(broken, StateError)
    assert file.load().meta == {"good": "1"}
    file.close()


@pytest.mark.asyncio
async def test_a_burst_of_writes_is_all_there(tmp_path: Path) -> None:
    """Whoever was answered is on disk."""
    async with StateThread(tmp_path / "state.db") as thread:
        state = AgentState(thread)
        await state.load()
        rows = [evolve(FULL, id=f"w{number}") for number in range(300)]
        await asyncio.gather(*map(state.save, rows))
    async with StateThread(tmp_path / "state.db") as thread:
        state = AgentState(thread)
        await state.load()
        assert sorted(row.id for row in state) == sorted(row.id for row in rows)
    with pytest.raises(StateError, match="closed"):
        await state.save(FULL)
