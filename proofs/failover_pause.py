"""The leader is lost in the middle of a pass, without its knowing, and is back when another leads.

Decided here: the course. What the leader has sent to the machines is held on its way; it is stopped
with SIGSTOP, or cut off from etcd, past its lease; another replica takes over and does the work;
then what was held arrives, and the old leader goes on. Which commits are whose is told by the
bytes that each replica sent to etcd.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field

from persys_core.ports.cluster_store import Kind
from persys_core.sim.agent_journal import Happening
from proofs.chaos.convergence import unfinished
from proofs.chaos.lined import LinedFleet, lined_fleet
from proofs.chaos.promises import image_of
from proofs.chaos.replicas import Replica
from proofs.chaos.rules_machines import Bounds
from proofs.chaos.stage import Size, Stage, replicated
from tests.e2e.processes import client, container, eventually

__all__ = ["Paused", "pause_in_the_middle"]

WORK = tuple(f"w{number}" for number in range(24))
FIRST = 8
AT_ONCE = 12
STATUS = b"/workloads-status/w"
"""Stands in what the leader alone commits here: the API of another replica takes the work in."""
NODES = 4
QUIET_SECONDS = 5.0
_TOKEN = re.compile(rb'"token": ?"([0-9a-f]{16})"')
_CALLS = (Happening.APPLY, Happening.DELETE)
_NOT_OF_LOOPS = frozenset({Kind.NODE})
"""Written by the API when a machine registers, by any replica and under no fence."""


@define
class Paused:
    """What came of it; ``old`` is the lost leader's epoch, ``held`` the tokens of the commits
    that it had sent and that reached etcd only when another one led. One that is ``cut_off`` runs
    on, so it takes its calls back itself."""

    cut_off: bool = False
    old: int = 0
    new: int = 0
    announced: int = 0
    in_flight: int = 0
    queued: int = 0
    refused: int = 0
    executed: list[str] = field(factory=list)
    started_after: list[str] = field(factory=list)
    held: set[str] = field(factory=set)
    sent_after: int = 0
    landed: list[str] = field(factory=list)
    violations: list[str] = field(factory=list)

    def figures(self) -> Iterator[tuple[str, int, str]]:
        """Names, values and units."""
        for name, value, unit in self._figures():
            yield f"{'cut_off' if self.cut_off else 'paused'}_{name}", value, unit

    def _figures(self) -> Iterator[tuple[str, int, str]]:
        yield "calls_announced", self.announced, "count"
        yield "calls_in_flight", self.in_flight, "count"
        yield "calls_not_made_yet", self.queued, "count"
        yield "late_calls_refused", self.refused, "count"
        yield "late_calls_executed", len(self.executed), "count"
        yield "calls_started_after_the_loss", len(self.started_after), "count"
        yield "commits_held_over_the_loss", len(self.held), "count"
        yield "commits_sent_after_the_loss", self.sent_after, "count"
        yield "commits_landed_after_the_loss", len(self.landed), "count"

    def broken(self) -> list[str]:
        """What does not hold, in sentences."""
        found = list(self.violations)
        if not ((self.in_flight or self.cut_off) and self.queued and self.held):
            found.append("the leader was not lost in the middle of a pass")
        if self.refused != self.in_flight:
            found.append(f"of {self.in_flight} late calls {self.refused} were refused")
        found += [f"a late call was executed: {each}" for each in self.executed]
        found += [f"a call was started after the loss: {each}" for each in self.started_after]
        found += [f"a write of the old epoch landed: {each}" for each in self.landed]
        return found


@define(eq=False)
class _Tap:
    """The tokens of the commits that one replica sent to etcd."""

    tokens: set[str] = field(factory=set)
    _tail: bytes = b""

    def __call__(self, chunk: bytes) -> None:
        text = self._tail + chunk
        self.tokens.update(found.decode() for found in _TOKEN.findall(text))
        self._tail = text[-64:]


async def pause_in_the_middle(folder: Path, ttl: int, *, cut_off: bool = False) -> Paused:
    """The whole course, on a stage of its own."""
    size = Size(
        ttl=ttl,
        redis=False,
        grace=180,
        environment={
            "SCHEDULER_RECONCILE_CONCURRENCY": str(AT_ONCE),
            # What is held must not be given up before the leader is stopped.
            "SCHEDULER_AGENT_RPC_TIMEOUT": "10s",
            "SCHEDULER_AGENT_APPLY_TIMEOUT": f"{ttl * 5}s",
            "SCHEDULER_REAPPLY_GUARD": f"{ttl * 5}s",
        },
    )
    async with (
        replicated(folder, size, keep=True) as stage,
        lined_fleet(stage.door, stage.observer, NODES, 32_000) as machines,
    ):
        await stage.nodes_are_there(machines.names)
        taps = {replica.name: _tapped(replica) for replica in stage.replicas}
        paused = Paused(cut_off)
        await _apply(stage, stage.replicas[0], 1, WORK)
        await _settled(stage)
        leader = await _stop_in_the_middle(stage, machines, taps, paused)
        await _taken_over(stage, paused)
        await _late(stage, machines, leader, taps[leader.name], paused)
        paused.violations += [
            each.describe(0) for each in stage.observer.verdict(Bounds.of_seconds(size.grace))
        ]
    return paused


def _tapped(replica: Replica) -> _Tap:
    tap = _Tap()
    for line in replica.lines:
        line.tap = tap
    return tap


def _epoch(stage: Stage) -> int:
    (epoch,) = stage.observer.picture.epochs()
    return epoch


async def _apply(stage: Stage, replica: Replica, generation: int, work: Sequence[str]) -> None:
    promises = stage.observer.promises
    async with client(replica.address) as stub:
        for workload_id in work:
            asking = promises.asks(workload_id, generation, datetime.now(UTC))
            wish = container(workload_id, image_of(generation))
            assert (await stub.ApplyWorkload(wish, timeout=10)).success
            promises.accepted(asking, datetime.now(UTC))


def _open(stage: Stage) -> list[tuple[str, str]]:
    seen = stage.observer
    return list(unfinished(seen.picture, seen.timelines, seen.promises))


async def _settled(stage: Stage) -> None:
    """Wait until everything runs as it is wanted."""
    try:
        await eventually(lambda: not _open(stage), "everything runs as it is wanted", 120)
    except AssertionError as error:
        raise AssertionError(f"{error}; {_open(stage)[:5]}") from None


def _announced(stage: Stage, epoch: int) -> int:
    """How many calls were announced under this epoch."""
    known = stage.observer.timelines.announced
    return sum(count for call, count in known.items() if call.epoch == epoch)


async def _stop_in_the_middle(
    stage: Stage, machines: LinedFleet, taps: Mapping[str, _Tap], paused: Paused
) -> Replica:
    """Lose the leader while calls of its to all machines but one, and a commit, are on their way,
    and it has more to do."""
    leader = await stage.until_led()
    other = next(each for each in stage.replicas if each is not leader)
    paused.old, tap = _epoch(stage), taps[leader.name]
    before = _announced(stage, paused.old)
    *some, _ = machines.names
    machines.hold_at(image_of(2).encode(), some)
    await _apply(stage, other, 2, WORK[:FIRST])
    await eventually(lambda: machines.hold_back(some), "calls are on their way", 30)
    seen = set(tap.tokens)
    for line in leader.lines:
        line.hold_at = STATUS
    await _apply(stage, other, 2, WORK[FIRST:])
    await eventually(
        lambda: any(line.holds_back for line in leader.lines), "a commit is on its way", 30
    )
    leader.part() if paused.cut_off else leader.pause()
    machines.hold_at(b"", some)
    await asyncio.sleep(0.5)  # what it committed before is seen
    paused.held = tap.tokens - seen - {token for _, token in stage.observer.history}
    paused.announced = _announced(stage, paused.old) - before
    paused.queued = len(WORK) - paused.announced
    return leader


async def _taken_over(stage: Stage, paused: Paused) -> None:
    """Wait until another one leads and every machine has obeyed it."""
    await eventually(lambda: _epoch_or_none(stage) > paused.old, "another one leads", 60)
    paused.new = _epoch(stage)

    def obeyed() -> bool:
        calls = stage.observer.timelines.calls
        return len({line.node_id for line in calls if line.epoch == paused.new}) == NODES

    await eventually(obeyed, "every machine has obeyed the new leader", 60)


def _epoch_or_none(stage: Stage) -> int:
    return max(stage.observer.picture.epochs(), default=0)


async def _late(
    stage: Stage, machines: LinedFleet, leader: Replica, tap: _Tap, paused: Paused
) -> None:
    """What was held arrives, the old leader goes on; what comes of both."""
    before, seen = len(stage.observer.timelines.calls), set(tap.tokens)
    machines.go_on()
    leader.join(late=True)
    await asyncio.sleep(1)
    arrived = _of_old(stage, paused, before)
    paused.in_flight = len(arrived)
    continued, before = stage.observer.now(), len(stage.observer.timelines.calls)
    if not paused.cut_off:
        leader.resume()
    await asyncio.sleep(QUIET_SECONDS)
    await _settled(stage)
    refused = {(line.workload_id, line.at) for line in stage.observer.timelines.refusals}
    paused.refused = sum((workload, at) in refused for workload, at in arrived)
    paused.executed = [work for work, at in arrived if (work, at) not in refused]
    paused.started_after = [
        f"{work} at {at:%H:%M:%S.%f}, it went on at {continued:%H:%M:%S.%f}"
        for work, at in _of_old(stage, paused, before)
    ]
    paused.sent_after = len(tap.tokens - seen)
    paused.landed = [
        f"revision {step.revision}: {', '.join(str(each.key) for each in step.touched)}"
        for step, token in stage.observer.history
        if step.revision > stage.observer.leaders[-1].revision
        and token in tap.tokens
        and any(each.key.kind not in _NOT_OF_LOOPS for each in step.touched)
    ]


def _of_old(stage: Stage, paused: Paused, before: int) -> list[tuple[str, datetime]]:
    calls = stage.observer.timelines.calls[before:]
    return [(line.workload_id, line.at) for line in calls if line.epoch == paused.old]
