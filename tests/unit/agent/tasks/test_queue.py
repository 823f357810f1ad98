from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persys_agent.state.lock import StateError
from persys_agent.state.records import Task, TaskKind, TaskState
from persys_agent.state.store import AgentState
from persys_agent.tasks.queue import TaskQueue
from persys_agent.testing import InlineState
from persys_core.ports.clock import Clock
from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import DEFAULT_START, run_virtual
from persys_core.testing.virtual import virtual_time

SECOND = timedelta(seconds=1)


class Recorder:
    """Work that takes a second and notes what it did."""

    def __init__(self, clock: Clock) -> None:
        self.done: list[Task] = []
        self.running = 0
        self.most = 0
        self._clock = clock

    async def __call__(self, task: Task) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        await self._clock.sleep(SECOND)
        self.running -= 1
        self.done.append(task)
        return "it failed" if task.revision_id == "bad" else ""


@asynccontextmanager
async def queue_of(
    path: Path, clock: Clock, work: Callable[[Task], Awaitable[str]], **limits: Any
) -> AsyncIterator[TaskQueue]:
    async with InlineState(path / "state.db") as file:
        state = AgentState(file)
        await state.load()
        queue = TaskQueue(state, work, clock, **limits)
        queue.start()
        try:
            yield queue
        finally:
            await queue.stop()


async def drained(queue: TaskQueue, clock: Clock) -> None:
    while queue.depth:
        await clock.sleep(SECOND / 10)


def states(queue: TaskQueue) -> list[str]:
    return [task.state for task in queue.history.find()]


@virtual_time()
async def test_a_task_is_carried_out_and_remembered(clock: VirtualClock, tmp_path: Path) -> None:
    """Its id, times and outcome are in the history."""
    async with queue_of(tmp_path, clock, Recorder(clock)) as queue:
        task = await queue.submit(TaskKind.APPLY, "w1", revision_id="r1")
        assert task.id.startswith("apply-w1-")
        await drained(queue, clock)
        (ended,) = queue.history.find(workload_id="w1", kind="apply_workload", state="completed")
        assert ended.id == task.id
        assert ended.started_at is not None
        assert ended.ended_at == ended.started_at + SECOND


@virtual_time()
async def test_a_delete_never_overtakes_an_apply(clock: VirtualClock, tmp_path: Path) -> None:
    """Tasks of one workload run one after the other, in the order of acceptance (A13)."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work) as queue:
        await queue.submit(TaskKind.APPLY, "w1")
        await clock.sleep(SECOND / 2)
        await queue.submit(TaskKind.DELETE, "w1")
        await queue.submit(TaskKind.APPLY, "w1")
        await drained(queue, clock)
        assert [task.kind for task in work.done] == [
            TaskKind.APPLY,
            TaskKind.DELETE,
            TaskKind.APPLY,
        ]
        assert work.most == 1


@virtual_time()
async def test_what_has_not_begun_is_superseded(clock: VirtualClock, tmp_path: Path) -> None:
    """Of many applies behind a running one only the last is carried out."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work) as queue:
        for number in range(6):
            await queue.submit(TaskKind.APPLY, "w1", revision_id=f"r{number}")
            await clock.sleep(SECOND / 100)
        await drained(queue, clock)
        assert [task.revision_id for task in work.done] == ["r0", "r5"]
        assert states(queue).count("superseded") == 4


@virtual_time()
async def test_a_superseded_delete_hands_its_wish_on(clock: VirtualClock, tmp_path: Path) -> None:
    """A second delete keeps the first one's order to remove the data."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work) as queue:
        await queue.submit(TaskKind.APPLY, "w1")
        await clock.sleep(SECOND / 2)
        await queue.submit(TaskKind.DELETE, "w1", delete_volumes=True)
        await queue.submit(TaskKind.DELETE, "w1")
        await drained(queue, clock)
        assert [task.delete_volumes for task in work.done] == [False, True]


@virtual_time()
async def test_workloads_run_beside_each_other_up_to_the_limit(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Accepting never waits for the work, however much there is (A15)."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work, workers=3) as queue:
        began = clock.monotonic()
        for number in range(50):
            await queue.submit(TaskKind.APPLY, f"w{number}")
        assert clock.monotonic() == began
        await drained(queue, clock)
        assert work.most == 3
        assert len(work.done) == 50


@virtual_time()
async def test_a_restart_carries_on_what_was_open(clock: VirtualClock, tmp_path: Path) -> None:
    """Running and waiting tasks alike, each workload's in its order (A18)."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work, workers=1) as queue:
        await queue.submit(TaskKind.APPLY, "w1")
        await clock.sleep(SECOND / 2)
        await queue.submit(TaskKind.DELETE, "w1")
        await queue.submit(TaskKind.APPLY, "w2")
    assert work.done == []
    async with queue_of(tmp_path, clock, work, workers=1) as queue:
        await drained(queue, clock)
        assert sorted((task.workload_id, task.kind) for task in work.done) == [
            ("w1", TaskKind.APPLY),
            ("w1", TaskKind.DELETE),
            ("w2", TaskKind.APPLY),
        ]
        assert states(queue) == ["completed"] * 3


@virtual_time()
async def test_the_history_is_bounded_on_disk_too(clock: VirtualClock, tmp_path: Path) -> None:
    """The oldest ended tasks go; what is open never does (A17)."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work, history_limit=5) as queue:
        for number in range(20):
            await queue.submit(TaskKind.APPLY, f"w{number}")
        await drained(queue, clock)
        assert len(queue.history.find()) == 5
    async with queue_of(tmp_path, clock, work, history_limit=5) as queue:
        assert len(queue.history.find()) == 5


@virtual_time()
async def test_a_failed_task_keeps_its_error(clock: VirtualClock, tmp_path: Path) -> None:
    """Over a restart, too."""
    async with queue_of(tmp_path, clock, Recorder(clock)) as queue:
        await queue.submit(TaskKind.APPLY, "w1", revision_id="bad")
        await drained(queue, clock)
    async with queue_of(tmp_path, clock, Recorder(clock)) as queue:
        (task,) = queue.history.find(state="failed")
        assert task.error == "it failed"


@virtual_time()
async def test_a_bug_in_the_work_ends_the_task(clock: VirtualClock, tmp_path: Path) -> None:
    """The line goes on, and the bug is counted."""

    async def broken(task: Task) -> str:
        raise LookupError(task.id)

    async with queue_of(tmp_path, clock, broken) as queue:
        await queue.submit(TaskKind.APPLY, "w1")
        await queue.submit(TaskKind.DELETE, "w1")
        await drained(queue, clock)
        assert queue.errors >= 1
        assert {task.error[:14] for task in queue.history.find(state="failed")} == {
            "[SYSTEM_ERROR]"
        }


@virtual_time()
async def test_a_caller_that_leaves_has_been_heard(clock: VirtualClock, tmp_path: Path) -> None:
    """An RPC that is given up in the middle of the write leaves the task accepted (A15)."""
    work = Recorder(clock)
    async with queue_of(tmp_path, clock, work) as queue:
        call = asyncio.create_task(queue.submit(TaskKind.APPLY, "w1"))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await clock.sleep(SECOND * 2)
        assert [task.workload_id for task in work.done] == ["w1"]


@virtual_time()
async def test_other_work_takes_its_turn(clock: VirtualClock, tmp_path: Path) -> None:
    """What is no task runs only while no task is open, and tasks wait for it."""
    work = Recorder(clock)
    seen: list[int] = []
    async with queue_of(tmp_path, clock, work) as queue:

        async def repair() -> None:
            await clock.sleep(SECOND * 3)
            seen.append(len(work.done))

        repairing = asyncio.create_task(queue.exclusively("w1", repair))
        await clock.sleep(SECOND)
        await queue.submit(TaskKind.APPLY, "w1")
        assert await queue.exclusively("w1", repair) is False
        assert await repairing is True
        assert seen == [0]
        await drained(queue, clock)
        assert len(work.done) == 1


@virtual_time()
async def test_a_disk_that_fails_accepts_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    """What was waiting before is still carried out."""

    class Failing(AgentState):
        broken = False

        async def save_tasks(self, tasks: object, without: object = ()) -> None:
            if self.broken:
                raise StateError("disk full")

    work = Recorder(clock)
    async with InlineState(tmp_path / "state.db") as file:
        state = Failing(file)
        queue = TaskQueue(state, work, clock, workers=1)
        queue.start()
        await queue.submit(TaskKind.APPLY, "w1")
        await queue.submit(TaskKind.APPLY, "w2", revision_id="r1")
        state.broken = True
        with pytest.raises(StateError):
            await queue.submit(TaskKind.APPLY, "w2", revision_id="r2")
        state.broken = False
        await drained(queue, clock)
        assert [task.revision_id for task in work.done] == ["", "r1"]
        await queue.stop()


_STEP = st.tuples(st.sampled_from(["apply", "stop", "delete"]), st.sampled_from([0.0, 0.4, 1.2]))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(_STEP, min_size=1, max_size=12), st.integers(1, 3), st.booleans())
def test_a_storm_ends_with_the_last_wish(
    steps: list[tuple[str, float]], workers: int, restarts: bool
) -> None:
    """Whatever order of applies and deletes, and a restart in between: what is carried out is a
    subsequence of what was accepted, and its last is the last accepted (A13)."""
    accepted: list[str] = []
    carried: list[str] = []

    async def scenario(clock: VirtualClock) -> None:
        async def work(task: Task) -> str:
            await clock.sleep(SECOND)
            carried.append(task.id)
            return ""

        async def submit(queue: TaskQueue, wish: str) -> None:
            kind = TaskKind.DELETE if wish == "delete" else TaskKind.APPLY
            task = await queue.submit(kind, "w1", revision_id=wish)
            accepted.append(task.id)

        half = len(steps) // 2
        with tempfile.TemporaryDirectory() as folder:
            for part in (steps[:half], steps[half:]) if restarts else (steps,):
                async with queue_of(Path(folder), clock, work, workers=workers) as queue:
                    for wish, wait in part:
                        await submit(queue, wish)
                        await clock.sleep(timedelta(seconds=wait))
                    if part is not steps[:half] or not restarts:
                        await drained(queue, clock)
            async with queue_of(Path(folder), clock, work, workers=workers) as queue:
                await drained(queue, clock)
                assert all(not task.is_open for task in queue.history.find())

    run_virtual(scenario, start=DEFAULT_START)
    assert carried[-1] == accepted[-1]
    places = [accepted.index(each) for each in carried]
    assert places == sorted(places)


def test_the_words_of_states_are_those_of_the_field() -> None:
    """ListActions has four words of every agent and one of ours."""
    assert [*TaskState] == ["pending", "running", "completed", "failed", "superseded"]
