"""Replicas that come and go in elastic mode, on a real etcd: `python -m proofs.elastic`.

Decided here: the course and the bounds. Four replicas share a thousand nodes; every five seconds
one joins or one leaves, for five minutes, every fifth leave without a word. Who acts for a node
follows from what a replica's view shows, so that looking whenever a view changed misses no moment:
never may two replicas act for one node. The time that a node had nobody is told for each change.
The tests hold the short form of this.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from attrs import define, field

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_adapters.etcd.membership import EtcdMembership
from persys_adapters.system_clock import SystemClock
from persys_core.control.config import HaConfig, SchedulerConfig, SchedulerPorts
from persys_core.control.ownership import seats_in
from persys_core.control.scheduler import Scheduler
from persys_core.memory.agents import MemoryAgents
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.replica import HaMode
from persys_core.ports.cluster_store import COORDINATION, Commit, Expectation, Key, Put
from persys_core.sharding.hashing import UNASSIGNED
from persys_core.sim.agent_cluster import SimulatedMachines
from tests.builders import make_node
from tests.servers.etcd import EtcdCluster, run_cluster

__all__ = ["Course", "main"]

CLEAN_LIMIT = 1.0
"""Seconds that a node may be without an owner after a clean change."""
NODES_PER_COMMIT = 50
SILENT_EVERY = 5
"""Every so many leaves are losses; the second is the first of them."""


@define(eq=False)
class Replica:
    """A scheduler in this process, with a connection of its own."""

    scheduler: Scheduler
    client: EtcdClient
    is_up: bool = True


@define
class Change:
    """One join or leave; ``unowned``: node to the seconds without an owner until the next one."""

    what: str
    clean: bool
    unowned: dict[str, float] = field(factory=dict)

    @property
    def longest(self) -> float:
        """The longest that one node had nobody."""
        return max(self.unowned.values(), default=0.0)


@define(eq=False)
class Course:
    """One run. ``ttl``: seconds that a replica's lease outlives it."""

    etcd: EtcdCluster
    nodes: int
    ttl: float
    replicas: list[Replica] = field(factory=list)
    changes: list[Change] = field(factory=list)
    doubles: list[str] = field(factory=list)
    looks: int = 0
    _names: list[str] = field(factory=list)
    _alone_since: dict[str, float] = field(factory=dict)
    _serial: int = 0

    async def prepare(self) -> None:
        """The records of the nodes, in a store that has a cluster already."""
        await self.join()
        self._names = [f"node-{number:04}" for number in range(self.nodes)]
        store = EtcdClusterStore(self.replicas[0].client)
        for start in range(0, self.nodes, NODES_PER_COMMIT):
            part = [Key.node(name) for name in self._names[start : start + NODES_PER_COMMIT]]
            expects = tuple(Expectation(key, revision=0) for key in part)
            puts = tuple(Put(key, make_node(key.id)) for key in part)
            await store.commit(Commit(expects, puts, f"nodes-{start}"))
        await self.until_whole()

    async def join(self) -> None:
        """One more replica."""
        self._serial += 1
        client = EtcdClient(EtcdConfig(endpoints=self.etcd.endpoints))
        clock = SystemClock()
        ports = SchedulerPorts(
            store=EtcdClusterStore(client),
            liveness=MemoryLiveness(clock, timedelta(hours=1)),
            membership=EtcdMembership(
                client, clock, f"replica-{self._serial}", ttl=timedelta(seconds=self.ttl)
            ),
            agents=MemoryAgents(SimulatedMachines(clock)),
            events=MemoryEventLog(clock=clock),
            telemetry=MemoryTelemetry(),
            clock=clock,
            rng=random.Random(self._serial),
        )
        calm = timedelta(minutes=10)
        config = SchedulerConfig(
            ha=HaConfig(HaMode.ELASTIC),
            reconcile_interval=calm,
            drift_interval=calm,
            pending_sweep_interval=calm,
        )
        replica = Replica(Scheduler(ports, config), client)
        replica.scheduler.view.listen(lambda key, _, __: self._look_soon(key))
        await replica.scheduler.start()
        self.replicas.append(replica)

    async def leave(self, *, clean: bool) -> None:
        """The oldest one goes: with a word, or cut off from etcd as a killed process is."""
        replica = self.replicas[0]
        if clean:
            await replica.scheduler.stop()
            await replica.client.aclose()
        else:
            await replica.client.aclose()
            replica.is_up = False
            self.look()
            with suppress(Exception):
                await replica.scheduler.abandon()
        replica.is_up = False
        self.replicas.remove(replica)
        self.look()

    def _look_soon(self, key: Key) -> None:
        """Once everybody else who listens to the view knows of the change, too."""
        if key.kind in COORDINATION:
            asyncio.get_running_loop().call_soon(self.look)

    def look(self) -> None:
        """Who acts for what at this moment."""
        self.looks += 1
        now = time.monotonic()
        up = [each.scheduler for each in self.replicas if each.is_up]
        for name in (UNASSIGNED, *self._names):
            owners = [each.instance_id for each in up if each.acts_for(name)]
            if len(owners) > 1:
                self.doubles.append(f"{name or 'the unassigned'}: {', '.join(owners)}")
            if owners:
                self._owned_again(name, now)
            else:
                self._alone_since.setdefault(name, now)

    def _owned_again(self, name: str, now: float) -> None:
        since = self._alone_since.pop(name, None)
        if since is not None and self.changes:
            unowned = self.changes[-1].unowned
            unowned[name] = unowned.get(name, 0.0) + now - since

    async def change(self, what: str, *, clean: bool = True) -> Change:
        """Make one, and wait until every node has an owner again."""
        change = Change(what, clean)
        self.changes.append(change)
        if what == "join":
            await self.join()
        else:
            await self.leave(clean=clean)
        await self.until_whole()
        return change

    async def until_whole(self) -> None:
        """Until every node has an owner, by a map of those that are there."""
        async with asyncio.timeout(30 + 4 * self.ttl):
            while True:
                self.look()
                if not self._alone_since and all(map(self._agrees, self.replicas)):
                    return
                await asyncio.sleep(0.02)

    def _agrees(self, replica: Replica) -> bool:
        """Whether the replica knows a map of those that are there, acknowledged by all of them."""
        seats = seats_in(replica.scheduler.view)
        there = {each.scheduler.instance_id for each in self.replicas}
        done = seats.map is not None and set(seats.map.members) == there == set(seats.acknowledged)
        return done and set(seats.acknowledged.values()) == {seats.map.version if seats.map else 0}

    async def stop(self) -> None:
        """End the replicas that are left."""
        for replica in self.replicas:
            await replica.scheduler.stop()
            await replica.client.aclose()


async def run(course: Course, *, seconds: float, every: float, members: int) -> None:
    """Join until there are ``members``, then leave and join in turn."""
    await course.prepare()
    for _ in range(members - 1):
        await course.change("join")
    end = time.monotonic() + seconds
    leaves = 0
    while time.monotonic() < end:
        began = time.monotonic()
        if len(course.replicas) >= members:
            leaves += 1
            change = await course.change("leave", clean=leaves % SILENT_EVERY != 2)
        else:
            change = await course.change("join")
        _progress(f"{change.what}: {change.longest:.3f} s")
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))


def report(course: Course) -> list[str]:
    """Print the figures; what did not hold."""
    broken = []
    for number, change in enumerate(course.changes, 1):
        kind = change.what if change.clean else "loss"
        total = sum(change.unowned.values())
        print(f"elastic_change_{number}_{kind}_longest_unowned {change.longest:.3f} s")
        print(f"elastic_change_{number}_{kind}_node_seconds_unowned {total:.2f} s")
    clean = [each.longest for each in course.changes if each.clean]
    lost = [each.longest for each in course.changes if not each.clean]
    print(f"elastic_nodes {course.nodes} count")
    print(f"elastic_changes {len(course.changes)} count")
    print(f"elastic_looks {course.looks} count")
    print(f"elastic_doubly_owned {len(course.doubles)} count")
    print(f"elastic_longest_unowned_clean {max(clean, default=0.0):.3f} s")
    print(f"elastic_longest_unowned_loss {max(lost, default=0.0):.3f} s")
    if course.doubles:
        broken.append(f"two replicas acted at once, first for {course.doubles[0]}")
    if max(clean, default=0.0) >= CLEAN_LIMIT:
        broken.append(f"a clean change left a node alone for {max(clean):.2f} s")
    if max(lost, default=0.0) >= course.ttl + 2:
        broken.append(f"a loss left a node alone for {max(lost):.2f} s, lease {course.ttl:g} s")
    return broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proofs.elastic", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--replicas", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--every", type=float, default=5.0, help="seconds from change to change")
    parser.add_argument("--ttl", type=float, default=5.0, help="seconds of a replica's lease")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as folder,
        run_cluster(Path(folder), 1) as etcd,
    ):
        broken = asyncio.run(_prove(etcd, options))
    for sentence in broken:
        print(f"does not hold: {sentence}")
    return 1 if broken else 0


async def _prove(etcd: EtcdCluster, options: argparse.Namespace) -> list[str]:
    course = Course(etcd, options.nodes, options.ttl)
    try:
        await run(
            course,
            seconds=options.minutes * 60,
            every=options.every,
            members=options.replicas,
        )
    finally:
        await course.stop()
    return report(course)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:60}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
