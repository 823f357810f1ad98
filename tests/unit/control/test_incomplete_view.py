"""What a replica does not know yet is no reason to remove anything (field report L06)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest

from persys_core.control.config import SchedulerConfig
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.model.drift import OrphanPolicy
from persys_core.model.states import DesiredState
from persys_core.model.workload import Workload
from persys_core.ports.agents import ApplyRequest
from persys_core.ports.cluster_store import ClusterStore, Key, Snapshot, WatchBatch, WatchEvent
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, wish

DELETING = SchedulerConfig(orphan_policy=OrphanPolicy.DELETE, drift_interval=timedelta(seconds=5))
WORK = tuple(f"w{number}" for number in range(6))
NODES = ("n0", "n1", "n2")


class LateStore(MemoryClusterStore):
    """Takes its time for the first listing, while everything else is told at once."""

    clock: VirtualClock
    pause = timedelta(seconds=90)

    async def snapshot(self) -> Snapshot:
        await self.clock.sleep(self.pause)
        return await super().snapshot()


class BlindStore(MemoryClusterStore):
    """Its watch never shows what belongs to one workload."""

    hidden = "late"

    async def watch(self, after: int) -> AsyncIterator[WatchEvent]:
        async for event in super().watch(after):
            if isinstance(event, WatchBatch):
                seen = tuple(each for each in event.changes if each.key.id != self.hidden)
                yield WatchBatch(event.revision, seen, event.token)
            else:
                yield event


async def _started(clock: VirtualClock, first: type[MemoryClusterStore]) -> Driver:
    cluster = SimulatedCluster(clock, config=DELETING)
    cluster.wrap_store = lambda _: first(cluster.backend)
    await cluster.start_replica()
    for node_id in NODES:
        cluster.add_machine(machine(node_id))
    driver = Driver(cluster, clock)
    await driver.wait(seconds=5)
    for workload_id in WORK:
        await driver.apply(workload_id)
    await driver.wait(seconds=30)
    return driver


def _calls(driver: Driver) -> Mapping[str, int]:
    return {kind: driver.calls(kind) for kind in ("apply", "delete", "stopped", "started")}


@virtual_time()
async def test_nothing_is_removed_before_the_first_full_listing(clock: VirtualClock) -> None:
    """A replica whose listing takes its time, while agents already report and the watch already
    tells, calls no agent; once it knows everything there is nothing to do."""
    driver = await _started(clock, MemoryClusterStore)
    cluster, before = driver.cluster, _calls(driver)
    await cluster.crash(cluster.replicas[0])

    def late(_: ClusterStore) -> ClusterStore:
        store = LateStore(cluster.backend)
        store.clock = clock
        return store

    cluster.wrap_store = late
    starting = asyncio.create_task(cluster.start_replica())
    await driver.wait(seconds=60)
    assert not starting.done()
    assert _calls(driver) == before
    await starting
    await driver.wait(minutes=5)
    assert _calls(driver) == before
    assert [await driver.status(each) for each in WORK] == ["Running"] * len(WORK)
    await cluster.stop()


@pytest.mark.slow
@virtual_time()
async def test_an_owner_that_is_in_the_store_and_not_in_the_view_counts(
    clock: VirtualClock,
) -> None:
    """The leader's watch missed a workload that another replica placed; the agent reports it. To
    the leader it is an orphan, and the policy removes orphans: this one stays."""
    driver = await _started(clock, BlindStore)
    cluster = driver.cluster
    cluster.wrap_store = lambda store: store
    other = await cluster.start_replica()
    answer = await other.scheduler.admission.apply_workload(wish("late", container()))
    assert answer.node_id
    stored = (await MemoryClusterStore(cluster.backend).get([Key.workload("late")]))[
        Key.workload("late")
    ]
    assert stored is not None
    assert isinstance(stored.value, Workload)
    cluster.machines.model(answer.node_id).apply(
        ApplyRequest(
            "late", stored.value.revision_id, DesiredState.RUNNING, stored.value.spec, epoch=0
        ),
        clock.now(),
    )
    await driver.wait(minutes=10)
    assert cluster.replicas[0].scheduler.is_leader
    assert cluster.replicas[0].scheduler.view.workload("late") is None
    assert driver.calls("delete", "late") == 0
    assert "late" in cluster.machines.model(answer.node_id).running(clock.now())
    await cluster.stop()
