"""What the simulator found, each fault once more in its smallest form."""

from __future__ import annotations

from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.answers import ApplyOutcomeKind
from persys_core.control.view import ClusterView
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.membership import MemoryMembership
from persys_core.model.cluster import LeaderRecord
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, OperatingMode, WorkloadStatus
from persys_core.model.workload import Allocation, Workload
from persys_core.modes.machine import ModeEvent
from persys_core.ports.cluster_store import (
    Commit,
    Delete,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    Versioned,
)
from persys_core.ports.observer import Metric
from persys_core.sim.agent_settings import Latency
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.sim.loop import run_virtual
from persys_core.sim.rng import stream
from persys_core.sim.store_faults import FaultyStore, StoreFaults, StoreWeather
from persys_core.testing.virtual import virtual_time
from tests.builders import container, machine, running_cluster, wish

ELECTION = "scheduler"
TTL = timedelta(seconds=0.2)


def all_of(view: ClusterView) -> dict[Key, Versioned[Record]]:
    return {Key(kind, id_): stored for kind in Kind for id_, stored in view.all(kind).items()}


@virtual_time()
async def test_a_leader_that_the_store_does_not_know_campaigns_anew(clock: VirtualClock) -> None:
    """A restored store has another leader's record: the present one's lease is worth nothing, so
    it steps down and is elected again (seed 105)."""
    async with running_cluster(clock, machine("n1")) as driver:
        backend = driver.cluster.backend
        backend.apply(Commit((), (Delete(Key.leader(ELECTION)),), "rogue"))
        record = LeaderRecord(ELECTION, "of-the-backup")
        backend.apply(Commit((), (Put(Key.leader(ELECTION), record),), "rogue"))
        await driver.apply("w", container())
        await driver.wait(seconds=20)
        assert await driver.status("w") == WorkloadStatus.RUNNING


@virtual_time()
async def test_a_late_view_answers_no_wish_with_unchanged(clock: VirtualClock) -> None:
    """A replica whose watch is late believes that the workload is stopped already; the store says
    that it was started, so the stop is not *unchanged* (seed 521 of a stress run)."""
    weather = StoreWeather()
    cluster = SimulatedCluster(
        clock,
        wrap_store=lambda store: FaultyStore(store, weather, clock, stream(0, "store")),
    )
    first = (await cluster.start_replica()).scheduler.admission
    second = (await cluster.start_replica()).scheduler.admission
    await first.apply_workload(wish("w", container(), DesiredState.STOPPED))
    await clock.sleep(timedelta(seconds=10))
    weather.faults = StoreFaults(watch_lag=Latency.of(60))
    await first.apply_workload(wish("w", None, DesiredState.RUNNING))
    answer = await second.apply_workload(wish("w", None, DesiredState.STOPPED))
    assert answer.outcome is ApplyOutcomeKind.DESIRED_STATE_CHANGED
    stored = cluster.backend.read(Key.workload("w"))
    assert stored is not None
    assert isinstance(stored.value, Workload)
    assert stored.value.desired_state is DesiredState.STOPPED
    await cluster.stop()


@virtual_time()
async def test_a_view_is_never_replaced_by_a_store_without_our_data(clock: VirtualClock) -> None:
    """Filled again piece by piece, an empty view looks like a cluster whose nodes left, and work
    would be moved from where it runs (seed 528 of a stress run)."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container())
        await driver.wait(seconds=20)
        scheduler, backend = driver.cluster.api(), driver.cluster.backend
        whole = backend.snapshot()
        backend.restore(Snapshot(0, {}))
        await driver.wait(seconds=1)
        assert scheduler.view.node("n1") is not None
        assert str(scheduler.mode.mode) == OperatingMode.RECOVERY
        backend.restore(whole)
        await driver.wait(seconds=20)
        assert str(scheduler.mode.mode) == OperatingMode.NORMAL
        await driver.apply("v", container())
        await driver.wait(seconds=20)
        assert await driver.status("v") == WorkloadStatus.RUNNING
        assert driver.calls("delete") == 0


@virtual_time()
async def test_a_late_view_that_contradicts_itself_is_no_bug(clock: VirtualClock) -> None:
    """A view that is late may hold a share larger than the ledger that it believes in. What was
    read is compared with the store before that is called a bug (seed 615 of a stress run)."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container(cpu=1000))
        await driver.wait(seconds=20)
        view = driver.cluster.api().view
        true = view.allocation("n1")
        assert true is not None
        late = evolve(true, value=Allocation("n1"), revision=true.revision - 1)
        view.load(Snapshot(view.revision, {**all_of(view), Key.allocation("n1"): late}))
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=20)
        assert driver.cluster.backend.read(Key.workload("w")) is None
        freed = driver.cluster.backend.read(Key.allocation("n1"))
        assert freed is not None
        assert freed.value == Allocation("n1")


@virtual_time()
async def test_what_is_nudged_during_a_freeze_is_done_after_it(clock: VirtualClock) -> None:
    """A stop that was accepted just before the store went away is not forgotten until the next
    sweep (seed 625 of a stress run)."""
    weather = StoreWeather()
    cluster = SimulatedCluster(
        clock, wrap_store=lambda store: FaultyStore(store, weather, clock, stream(0, "store"))
    )
    scheduler = (await cluster.start_replica()).scheduler
    cluster.add_machine(machine("n1", cpu=1000))
    await clock.sleep(timedelta(seconds=65))
    await scheduler.admission.apply_workload(wish("big", container(cpu=9000)))
    await clock.sleep(timedelta(seconds=1))
    scheduler.modes.report(ModeEvent.OPERATION_EXHAUSTED, "as if the store had been away")
    stored = scheduler.view.workload("big")
    assert stored is not None
    stopped = evolve(stored.value, desired_state=DesiredState.STOPPED)
    cluster.backend.apply(Commit((), (Put(Key.workload("big"), stopped),), "another-replica"))
    await clock.sleep(timedelta(seconds=12))
    status = scheduler.view.status("big")
    assert status is not None
    assert status.value.status is WorkloadStatus.STOPPED
    await cluster.stop()


@virtual_time()
async def test_an_audit_without_a_store_is_no_bug(clock: VirtualClock) -> None:
    """The ledger is compared in the next pass instead (seed 617 of a stress run)."""
    weather = StoreWeather()
    cluster = SimulatedCluster(
        clock, wrap_store=lambda store: FaultyStore(store, weather, clock, stream(0, "store"))
    )
    replica = await cluster.start_replica()
    cluster.add_machine(machine("n1"))
    await clock.sleep(timedelta(seconds=20))
    ledger = Allocation("n1", Resources.of(cpu_millicores=1), 1)
    cluster.backend.apply(Commit((), (Put(Key.allocation("n1"), ledger),), "rogue"))
    await clock.sleep(timedelta(seconds=1))
    weather.is_away = True
    await clock.sleep(timedelta(seconds=120))
    weather.is_away = False
    await clock.sleep(timedelta(seconds=120))
    assert replica.observer.count(Metric.BUGS) == 0
    assert cluster.backend.read(Key.allocation("n1")) is not None
    assert replica.observer.count(Metric.LEDGER_REPAIRS) == 1
    await cluster.stop()


@virtual_time()
async def test_power_loss_completes_nothing(clock: VirtualClock) -> None:
    """What stopped because its machine did has not ended well, and runs again (seed 11)."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container())
        await driver.wait(seconds=20)
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=60)
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=2)
        assert await driver.status("w") == WorkloadStatus.RUNNING
        assert "w" in driver.cluster.machines.model("n1").running(clock.now())


def test_a_lease_that_ends_between_two_ticks_of_the_clock_ends() -> None:
    """Who waits for it gets past the rest of a tick instead of waiting for nothing for ever, at
    one instant (seed 117)."""

    async def wait_for_the_lease(clock: VirtualClock) -> None:
        hub, store = ElectionHub(), MemoryClusterStore()
        one = MemoryMembership(hub, store, clock, "one", TTL)
        two = MemoryMembership(hub, store, clock, "two", TTL)
        await clock.sleep(timedelta(seconds=0.1))
        await one.campaign(ELECTION)
        one.close()
        # 0.1 + 0.2 is a little more than the 0.3 that the clock shows.
        await two.campaign(ELECTION)
        assert clock.monotonic() == pytest.approx(0.3, abs=0.01)
        two.close()

    run_virtual(wait_for_the_lease, limit=timedelta(seconds=5))


@virtual_time()
async def test_cleaning_up_after_a_crash_hands_nothing_over(clock: VirtualClock) -> None:
    """A replica that died does not resign, whatever its remains still do."""
    hub, store = ElectionHub(), MemoryClusterStore()
    one = MemoryMembership(hub, store, clock, "one", timedelta(seconds=15))
    leadership = await one.campaign(ELECTION)
    one.close()
    await one.resign(leadership)
    assert not one.is_valid(leadership)
    assert hub.holder(ELECTION, clock.monotonic() + 14) is not None
    assert hub.holder(ELECTION, clock.monotonic() + 15) is None
