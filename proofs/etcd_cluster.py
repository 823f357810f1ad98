"""A scheduler on a real etcd, for long: `python -m proofs.etcd_cluster`.

Decided here: the course and the bounds. Three nodes run six workloads on a server whose state is in
three members of etcd. First nothing happens for ten minutes, and the revision of etcd must stand
still. Then each member in turn is killed, and stopped, for 25 seconds while work arrives. Then all
members are away for a minute. The tests hold the short form of this.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
from attrs import define, field

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_core.ports.cluster_store import Kind
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.etcd_cluster import (
    LONGEST_CALL,
    NODES,
    WORK,
    all_run,
    at_work,
    changes,
    events,
    mode,
    on,
    records,
    until_mode,
)
from tests.e2e.processes import container
from tests.servers.etcd import EtcdCluster, run_cluster

__all__ = ["main"]

PAUSE_SECONDS = 0.5


@define
class Course:
    """What is told, and what did not hold."""

    stub: control_pb2_grpc.AgentControlAsyncStub
    applied: int = len(WORK)
    broken: list[str] = field(factory=list)

    def tell(self, name: str, value: float, unit: str) -> None:
        """One figure."""
        print(f"etcd_cluster_{name} {value:.4g} {unit}", flush=True)

    def expect(self, holds: bool, sentence: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.broken.append(sentence)

    async def work_for(self, seconds: float) -> float:
        """Apply one workload after the other; the longest time in which none was taken."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        last, longest = loop.time(), 0.0
        while loop.time() < end:
            try:
                request = container(f"x{self.applied}", cpu=1)
                await self.stub.ApplyWorkload(request, timeout=LONGEST_CALL)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(PAUSE_SECONDS / 5)
                continue
            self.applied += 1
            longest, last = max(longest, loop.time() - last), loop.time()
            await asyncio.sleep(PAUSE_SECONDS)
        return longest - PAUSE_SECONDS


async def stands_still(cluster: EtcdCluster, course: Course, seconds: float) -> None:
    """Nothing changes, so nothing is written."""
    async with EtcdClient(EtcdConfig(cluster.endpoints)) as etcd:
        await asyncio.sleep(2)
        before = (await etcd.range(b"x")).revision
        await asyncio.sleep(seconds)
        moved = (await etcd.range(b"x")).revision - before
    course.tell("steady_seconds", seconds, "s")
    course.tell("steady_revisions", moved, "revisions")
    course.expect(moved == 0, f"{moved} revisions in {seconds:g} s in which nothing happened")


async def lose_one(cluster: EtcdCluster, course: Course, seconds: float) -> None:
    """Each member in turn is away, in both ways."""
    for fault in ("kill", "pause"):
        for member in cluster.members:
            getattr(member, fault)()
            longest = await course.work_for(seconds)
            member.resume() if fault == "pause" else member.restart()
            course.tell(f"{member.name}_{fault}_longest_without_an_apply", longest, "s")
            course.expect(longest <= LONGEST_CALL, f"{member.name} {fault}: {longest:.1f} s")
    lost = await events(course.stub, "NodeLost")
    course.tell("nodes_lost", len(lost), "count")
    course.expect(not lost, f"{len(lost)} nodes were called lost")


async def lose_all(cluster: EtcdCluster, course: Course, address: str, seconds: float) -> None:
    """Every member is away: a freeze and nothing more."""
    settled = await records(cluster)
    for member in cluster.members:
        member.kill()
    await until_mode(address, "degraded")
    taken = course.applied
    await course.work_for(seconds)
    course.expect(course.applied == taken, "an apply was taken without a store")
    for member in cluster.members:
        member.start()
    for member in cluster.members:
        member.wait_ready()
    await until_mode(address, "normal", 60)
    after = await records(cluster)
    course.tell("all_away_seconds", seconds, "s")
    course.tell("all_away_records_changed", sum(settled.get(k) != after[k] for k in after), "count")
    course.expect(settled == after, "records changed while etcd was away")
    shown = await course.stub.ListWorkloads(pb.ListWorkloadsRequest(), timeout=5)
    known = {key.id for key in after if key.kind is Kind.WORKLOAD}
    listed = {view.workload_id for view in shown.workloads}
    course.expect(listed == known, "what is shown is not what stands in etcd")


async def prove(steady: float, one: float, every: float) -> list[str]:
    """The whole course; what did not hold."""
    with tempfile.TemporaryDirectory() as folder, run_cluster(Path(folder)) as cluster:
        async with (
            on(cluster, Path(folder)) as running,
            at_work(running.address) as (fleet, eye, stub),
        ):
            course = Course(stub)
            await stands_still(cluster, course, steady)
            await lose_one(cluster, course, one)
            course.expect(await all_run(eye, course.applied), "not all that was applied runs")
            calls = changes(fleet)
            await lose_all(cluster, course, running.address, every)
            course.tell("all_away_agent_calls", changes(fleet) - calls, "count")
            course.expect(changes(fleet) == calls, "agents were told something over the outage")
            course.expect(await all_run(eye, course.applied), "not everything runs afterwards")
            nodes = (await stub.ListNodes(pb.ListNodesRequest(), timeout=5)).nodes
            ready = sum(node.status == "Ready" for node in nodes)
            course.expect(ready == len(NODES), f"only {ready} nodes are Ready")
            course.expect(await mode(running.address) == "normal", "the mode is not normal")
    return course.broken


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 where anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steady", type=float, default=600, help="seconds of quiet")
    parser.add_argument("--one", type=float, default=25, help="seconds that one member is away")
    parser.add_argument("--all", type=float, default=60, help="seconds that all are away")
    given = parser.parse_args(arguments)
    broken = asyncio.run(prove(given.steady, given.one, given.all))
    for sentence in broken:
        print(f"does not hold: {sentence}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
