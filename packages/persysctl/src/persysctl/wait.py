"""Waiting until workloads are as they were wished to be.

Decided here: when a workload is done, failed or not yet, and when it is asked for again. Events
only say that it is worth looking; what decides is GetWorkload, so a lost event costs a moment and
never the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.client import Client
from persysctl.errors import CtlError, RefusedError
from persysctl.output.tables import why

__all__ = ["Goal", "Outcome", "Standing", "judge", "wait_for"]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_GROWTH = 1.6


@dataclass(frozen=True, slots=True)
class Goal:
    """What is waited for: a desired state, or that the workload is gone.

    ``revision_id`` is the one that an apply answered: until the view shows it, the view is old.
    """

    desired_state: str = "Running"
    revision_id: str = ""
    gone: bool = False


class Standing(Enum):
    """How a workload stands to its goal."""

    REACHED = auto()
    FAILED = auto()
    NOT_YET = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Where the waiting ended, with words for people and the last view."""

    standing: Standing
    text: str
    view: pb.WorkloadView | None = None


def judge(goal: Goal, view: pb.WorkloadView | None) -> Outcome:
    """How ``view`` (``None``: there is no such workload) stands to ``goal``."""
    if view is None or view.status == "Deleted":
        if goal.gone:
            return Outcome(Standing.REACHED, "gone", view)
        return Outcome(Standing.FAILED, "was deleted meanwhile", view)
    if goal.gone:
        return Outcome(Standing.NOT_YET, _words(view), view)
    if goal.revision_id and view.revision_id != goal.revision_id:
        return Outcome(Standing.NOT_YET, "the new revision is not seen yet", view)
    return _judge_state(goal, view)


def _judge_state(goal: Goal, view: pb.WorkloadView) -> Outcome:
    at_rest = {"Stopped", "Completed"} if goal.desired_state == "Stopped" else {"Completed"}
    if view.status == goal.desired_state or view.status in at_rest:
        return Outcome(Standing.REACHED, _words(view), view)
    # A view from before our wish may still show how the old one failed.
    is_ours = view.desired_state in ("", goal.desired_state)
    if view.status == "Failed" and is_ours and not view.HasField("retry_next_at"):
        return Outcome(Standing.FAILED, _words(view), view)
    return Outcome(Standing.NOT_YET, _words(view), view)


def _words(view: pb.WorkloadView) -> str:
    node = f" on {view.assigned_node_id}" if view.assigned_node_id else ""
    reason = why(view)
    return f"{view.status or 'Unknown'}{node}" + (f": {reason}" if reason else "")


async def wait_for(
    client: Client,
    goals: Mapping[str, Goal],
    seconds: float,
    tell: Callable[[str, Outcome], None] = lambda _, __: None,
) -> dict[str, Outcome]:
    """Wait until each workload reached its goal or failed, ``seconds`` at most.

    ``tell`` hears of every look. Who is not there in time is ``NOT_YET``.
    """
    nudges = {workload_id: asyncio.Event() for workload_id in goals}
    latest: dict[str, Outcome] = {}

    def note(workload_id: str, outcome: Outcome) -> None:
        latest[workload_id] = outcome
        tell(workload_id, outcome)

    async with _nudged(client, nudges):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for workload_id, goal in goals.items():
                    follow = _follow(client, workload_id, goal, nudges[workload_id], note)
                    group.create_task(follow)
    nothing = Outcome(Standing.NOT_YET, "nothing was heard of it")
    return {workload_id: latest.get(workload_id, nothing) for workload_id in goals}


async def _follow(
    client: Client,
    workload_id: str,
    goal: Goal,
    nudge: asyncio.Event,
    note: Callable[[str, Outcome], None],
) -> None:
    pause = _FIRST_PAUSE
    while True:
        nudge.clear()
        outcome = await _look(client, workload_id, goal)
        note(workload_id, outcome)
        if outcome.standing is not Standing.NOT_YET:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(nudge.wait(), pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


async def _look(client: Client, workload_id: str, goal: Goal) -> Outcome:
    """One look; a scheduler that cannot answer just now is looked at again."""
    try:
        response = await client.workload(workload_id)
    except RefusedError as error:
        if error.not_found:
            return judge(goal, None)
        if error.retryable:
            return Outcome(Standing.NOT_YET, str(error))
        return Outcome(Standing.FAILED, str(error))
    except CtlError as error:
        return Outcome(Standing.NOT_YET, str(error).splitlines()[0])
    return judge(goal, response.workload)


@asynccontextmanager
async def _nudged(client: Client, nudges: Mapping[str, asyncio.Event]) -> AsyncIterator[None]:
    """While inside, events about the workloads wake up whoever follows them."""
    watcher = asyncio.create_task(_watch(client, nudges))
    try:
        yield
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher


async def _watch(client: Client, nudges: Mapping[str, asyncio.Event]) -> None:
    """Until the stream ends; looking from time to time goes on without it."""
    only = next(iter(nudges)) if len(nudges) == 1 else ""
    with suppress(CtlError):
        async with aclosing(client.watch_events(pb.WatchEventsRequest(workload_id=only))) as events:
            async for event in events:
                if event.workload_id in nudges:
                    nudges[event.workload_id].set()
