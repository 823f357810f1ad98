"""When the store is away, empty or not ours, nothing that runs is touched."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.requests import Heartbeat, NodeIntentChange
from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.model.cluster import LeaderRecord
from persys_core.model.drift import OrphanPolicy
from persys_core.model.errors import FrozenError, NotFoundError
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import OperatingMode
from persys_core.model.workload import Allocation
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import (
    COORDINATION,
    ClusterStore,
    Commit,
    CommitResult,
    CommitTooLargeError,
    Guarantee,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    StoreFullError,
    StoreUnavailableError,
    Versioned,
    WatchEvent,
)
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, registration, running_cluster, wish

pytestmark = pytest.mark.slow


class Switch:
    """Turns every store that it wraps off and on."""

    def __init__(self) -> None:
        self.is_off = False
        self.is_full = False

    def wrap(self, store: ClusterStore) -> ClusterStore:
        """A store that answers only while the switch is on."""
        return SwitchedStore(store, self)


class SwitchedStore:
    """See ``Switch``."""

    def __init__(self, store: ClusterStore, switch: Switch) -> None:
        self._store = store
        self._switch = switch

    @property
    def backend_id(self) -> str:
        return self._store.backend_id

    async def compact(self, before: int) -> None:
        await self._store.compact(before)

    def _check(self) -> None:
        if self._switch.is_off:
            raise StoreUnavailableError("connection refused")

    @property
    def guarantees(self) -> Guarantee:
        return self._store.guarantees

    async def snapshot(self) -> Snapshot:
        self._check()
        return await self._store.snapshot()

    async def get(self, keys: Iterable[Key]) -> Mapping[Key, Versioned[Record] | None]:
        self._check()
        return await self._store.get(keys)

    async def commit(self, commit: Commit) -> CommitResult:
        self._check()
        if self._switch.is_full and any(isinstance(write, Put) for write in commit.writes):
            raise StoreFullError("database space exceeded")
        return await self._store.commit(commit)

    def watch(self, after: int) -> AsyncIterator[WatchEvent]:
        return self._store.watch(after)

    async def probe(self, *, writing: bool = False) -> int:
        self._check()
        if writing and self._switch.is_full:
            raise StoreFullError("database space exceeded")
        return await self._store.probe(writing=writing)


async def _cluster(clock: VirtualClock, switch: Switch) -> tuple[SimulatedCluster, Driver]:
    cluster = SimulatedCluster(clock, wrap_store=switch.wrap)
    await cluster.start_replica()
    for number in range(3):
        cluster.add_machine(machine(f"n{number}"))
    driver = Driver(cluster, clock)
    await driver.wait(seconds=5)
    for number in range(6):
        await driver.apply(f"w{number}")
    await driver.wait(seconds=30)
    return cluster, driver


async def _node_statuses(cluster: SimulatedCluster) -> list[str]:
    views, _ = await cluster.api().queries.list_nodes()
    return [view.status.value for view in views]


def _calls(driver: Driver) -> tuple[int, int]:
    return driver.calls("apply"), driver.calls("delete")


def _records(cluster: SimulatedCluster) -> dict[Key, Versioned[Record]]:
    """All but what replicas tell each other: they come and go with their leases."""
    found = cluster.backend.snapshot().records.items()
    return {key: stored for key, stored in found if key.kind not in COORDINATION}


@virtual_time()
async def test_outage_touches_nothing_that_runs(clock: VirtualClock) -> None:
    """Safety 7: five minutes without a store cost no agent call and no write; reads go on and say
    that they are old; afterwards everything is as before."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    before, records = _calls(driver), _records(cluster)
    switch.is_off = True
    await driver.wait(minutes=5)
    scheduler = cluster.api()
    assert scheduler.mode.mode.value == "degraded"
    with pytest.raises(FrozenError):
        await driver.apply("x")
    assert await driver.status("w0") == "Running"
    switch.is_off = False
    await driver.wait(minutes=5)
    assert scheduler.mode.mode.value == "normal"
    assert _calls(driver) == before
    assert _records(cluster) == records
    assert [await driver.status(f"w{number}") for number in range(6)] == ["Running"] * 6
    kinds = [event.details["to"] for event in await driver.events("SchedulerModeChanged")]
    assert kinds == ["degraded", "normal"]
    await cluster.stop()


@virtual_time()
async def test_while_frozen_nobody_is_kept_alive_by_another_agent(clock: VirtualClock) -> None:
    """To register again is of no use then, so the beat is acknowledged, and nothing else."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    node = evolve(registration("n9"), boot_id="a")
    await cluster.api().admission.register_node(node)
    switch.is_off = True
    await driver.wait(seconds=28)
    scheduler = cluster.api()
    assert scheduler.mode.mode.value == "degraded"
    beat = Heartbeat("n9", boot_id="b", sequence=1)
    answer = await scheduler.admission.heartbeat(beat)
    assert (answer.acknowledged, answer.known, answer.confirmed) == (True, True, timedelta(0))
    other = evolve(node, boot_id="b", endpoint="10.0.0.2:50051")
    assert (await scheduler.admission.register_node(other)).id_taken
    await driver.wait(seconds=4)
    assert not scheduler.ports.liveness.is_alive("n9")
    await cluster.stop()


@virtual_time()
async def test_a_store_that_is_away_is_not_a_thing_that_is_not_there(clock: VirtualClock) -> None:
    """Defect C12: what this replica does not know is not called *not found* while the store cannot
    be asked; what it knows is shown, with its age, and no beat leads to a new registration."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    switch.is_off = True
    api = cluster.api()
    with pytest.raises(StoreUnavailableError):
        await api.queries.get_workload("unknown")
    with pytest.raises(StoreUnavailableError):
        await api.queries.get_node("unknown")
    with pytest.raises(StoreUnavailableError):
        await api.admission.heartbeat(Heartbeat("unknown"))
    assert (await api.admission.heartbeat(Heartbeat("n0"))).known
    await driver.wait(minutes=1)
    assert (await api.admission.heartbeat(Heartbeat("unknown"))).known
    _, fresh = await api.queries.get_workload("w0")
    assert (fresh.stale, fresh.age > timedelta(seconds=30)) == (True, True)
    await cluster.stop()


@virtual_time()
async def test_frozen_answers_take_no_time(clock: VirtualClock) -> None:
    """Defect C14: while the store is away reads are served, and wishes refused, at once."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    switch.is_off = True
    await driver.wait(minutes=1)
    began = clock.monotonic()
    assert await driver.status("w0") == "Running"
    assert len((await cluster.api().queries.list_workloads())[0]) == 6
    with pytest.raises(FrozenError):
        await driver.apply("x")
    assert clock.monotonic() == began
    await cluster.stop()


@virtual_time()
async def test_a_value_that_is_too_large_freezes_nobody(clock: VirtualClock) -> None:
    """Defect C4: a commit that the store will never take is its writer's error, not an outage."""
    cluster, driver = await _cluster(clock, Switch())
    many = tuple(
        Put(Key.allocation(f"x{n}"), Allocation(f"x{n}", Resources(), 0)) for n in range(101)
    )
    with pytest.raises(CommitTooLargeError):
        await cluster.api().committer.commit(Transaction(writes=many))
    assert cluster.api().mode.mode is OperatingMode.NORMAL
    await driver.apply("x")
    await cluster.stop()


@virtual_time()
async def test_a_full_store_takes_removals_and_says_so(clock: VirtualClock) -> None:
    """Field report E05: out of space is told as that; what no node runs can be removed, other
    wishes name the reason; with space again all goes on by itself, and nothing was sent twice."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    await driver.apply("job", container("job"))
    await driver.apply("large", container(cpu=1_000_000))
    await driver.wait(minutes=2)
    assert [await driver.status(each) for each in ("job", "large")] == ["Completed", "Pending"]
    calls = _calls(driver)
    switch.is_full = True
    with pytest.raises(StoreFullError, match="database space exceeded"):
        await driver.apply("x")
    assert cluster.api().mode.mode is OperatingMode.DEGRADED
    await driver.wait(minutes=1)
    for refused in (driver.apply("y"), cluster.api().admission.delete_workload("w0", force=False)):
        with pytest.raises(FrozenError, match=r"out of space.*raise its quota"):
            await refused
    for gone in ("job", "large"):
        answer = await cluster.api().admission.delete_workload(gone, force=False)
        assert answer.outcome == "Deleted"
    with pytest.raises(NotFoundError):
        await cluster.api().admission.delete_workload("job", force=False)
    assert cluster.api().mode.mode is OperatingMode.DEGRADED
    switch.is_full = False
    await driver.wait(seconds=30)
    assert cluster.api().mode.mode is OperatingMode.NORMAL
    assert _calls(driver) == calls
    await driver.apply("x")
    await driver.wait(seconds=30)
    assert await driver.status("x") == "Running"
    await cluster.stop()


@virtual_time()
async def test_a_replica_starts_over_a_full_store(clock: VirtualClock) -> None:
    """It cannot be registered and leads nothing, but serves reads; it joins with space again."""
    switch = Switch()
    cluster, _ = await _cluster(clock, switch)
    switch.is_full = True
    late = await cluster.start_replica()
    assert late.scheduler.ready.is_set()
    view, _ = await late.scheduler.queries.get_workload("w0")
    assert view.workload.id == "w0"
    assert late.scheduler.instance_id not in cluster.api().view.all(Kind.REPLICA)
    switch.is_full = False
    await clock.sleep(timedelta(seconds=5))
    assert late.scheduler.instance_id in cluster.api().view.all(Kind.REPLICA)
    await cluster.stop()


@virtual_time()
async def test_agents_hold_only_after_a_minute(clock: VirtualClock) -> None:
    """Decisions §4: drain_node is told after 60 s of degraded, not at the first hiccup."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    switch.is_off = True
    await driver.wait(seconds=20)
    assert cluster.api().mode.mode is OperatingMode.DEGRADED
    assert not (await cluster.api().admission.heartbeat(Heartbeat("n0"))).drain_node
    await driver.wait(seconds=61)
    assert (await cluster.api().admission.heartbeat(Heartbeat("n0"))).drain_node
    await cluster.stop()


@pytest.mark.slow
@virtual_time()
async def test_who_beats_through_a_freeze_is_not_missed(clock: VirtualClock) -> None:
    """Ten minutes without a store: the nodes beat all the while, so all are Ready during it and
    right afterwards, nobody is lost, and nothing was written for it."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    records = _records(cluster)
    switch.is_off = True
    await driver.wait(minutes=10)
    assert await _node_statuses(cluster) == ["Ready"] * 3
    assert not (await cluster.api().queries.summary())[0].problems
    switch.is_off = False
    while cluster.api().mode.mode is not OperatingMode.NORMAL:
        assert await _node_statuses(cluster) == ["Ready"] * 3
        await driver.wait(seconds=1)
    assert await _node_statuses(cluster) == ["Ready"] * 3
    assert _records(cluster) == records
    await driver.wait(minutes=2)
    assert await driver.events("NodeLost") == []
    assert await driver.events("MassNodeLoss") == []
    await cluster.stop()


@virtual_time()
async def test_a_fence_stands_through_a_freeze(clock: VirtualClock) -> None:
    """A fenced node that beats while nothing can be written stays silent and fenced; its first
    beat afterwards ends the fence, and only then is it there."""
    switch = Switch()
    cluster, driver = await _cluster(clock, switch)
    cluster.machines.pause("n0")
    await driver.wait(minutes=1)
    await cluster.api().volumes.fence(NodeIntentChange("n0", "off", "ann"))
    switch.is_off = True
    await driver.wait(minutes=1)
    cluster.machines.resume("n0")
    await driver.wait(minutes=1)
    view, _ = await cluster.api().queries.get_node("n0")
    assert view.node.fence is not None
    assert not cluster.liveness.is_alive("n0")
    switch.is_off = False
    await driver.wait(minutes=2)
    view, _ = await cluster.api().queries.get_node("n0")
    assert view.node.fence is None
    assert cluster.liveness.is_alive("n0")
    assert len(await driver.events("NodeFenceEnded")) == 1
    await cluster.stop()


@virtual_time()
async def test_wiped_store_is_never_a_wish_to_delete(clock: VirtualClock) -> None:
    """E04: the store is emptied under running work: recovery, no delete, no stop, mutations
    refused."""
    cluster, driver = await _cluster(clock, Switch())
    before = _calls(driver)
    cluster.backend.restore(MemoryClusterBackend().snapshot())
    await driver.wait(minutes=10)
    assert cluster.api().mode.mode is OperatingMode.RECOVERY
    assert _calls(driver) == before
    for model in cluster.machines:
        assert model.running(clock.now())
    with pytest.raises(FrozenError, match="recovery"):
        await driver.apply("x")
    await cluster.stop()


@virtual_time()
async def test_fresh_store_under_running_work_is_recovery(clock: VirtualClock) -> None:
    """Decisions §4: a new marker and agents that already run work contradict each other."""
    async with running_cluster(clock) as driver:
        admission = driver.cluster.api().admission
        await admission.register_node(registration("n1"))
        report = AgentReport("w", AgentState.RUNNING, "r")
        await admission.heartbeat(Heartbeat("n1", (report,), boot_id="b", sequence=1))
        assert driver.cluster.api().mode.mode is OperatingMode.RECOVERY
        await driver.wait(minutes=1)
        assert driver.cluster.api().mode.mode is OperatingMode.RECOVERY


@virtual_time()
async def test_brand_new_cluster_survives_a_blip(clock: VirtualClock) -> None:
    """Defect A4: an empty new cluster that loses its store for a moment goes on as normal."""
    switch = Switch()
    cluster = SimulatedCluster(clock, wrap_store=switch.wrap)
    await cluster.start_replica()
    driver = Driver(cluster, clock)
    switch.is_off = True
    await driver.wait(seconds=30)
    switch.is_off = False
    await driver.wait(seconds=10)
    assert cluster.api().mode.mode is OperatingMode.NORMAL
    cluster.add_machine(machine("n1"))
    await driver.wait(minutes=1)
    assert (await driver.apply("w")).node_id == "n1"
    await cluster.stop()


@virtual_time()
async def test_nothing_is_placed_on_an_unlisted_node(clock: VirtualClock) -> None:
    """Decisions §4: a node takes work only after one full listing, which an agent that does not
    answer cannot give."""
    async with running_cluster(clock, machine("n1")) as driver:
        driver.cluster.machines.add(machine("n2", cpu=64_000))
        driver.cluster.machines.network.cut("n2", from_node=False)
        await driver.cluster.api().admission.register_node(
            driver.cluster.machines.model("n2").registration()
        )
        answer = await driver.apply("big", wish("big").spec)
        assert answer.node_id == "n1"
        explanation = await driver.cluster.api().queries.explain("big")
        assert explanation.node_id == "n1"
        from tests.builders import container

        refused = await driver.apply("bigger", container(cpu=32_000))
        assert refused.explanation is not None
        assert {tally.code for tally in refused.explanation.reasons} == {"cpu", "not_listed"}
        driver.cluster.machines.network.cut("n2", to_node=False, from_node=False)
        await driver.clock.sleep(timedelta(seconds=15))
        assert await driver.node_of("bigger") == "n2"


@virtual_time()
async def test_store_away_at_start_is_waited_for(clock: VirtualClock) -> None:
    """A replica that starts before its store serves once the store is there."""
    import asyncio

    switch = Switch()
    switch.is_off = True
    cluster = SimulatedCluster(clock, wrap_store=switch.wrap)
    starting = asyncio.ensure_future(cluster.start_replica())
    await clock.sleep(timedelta(seconds=30))
    assert not starting.done()
    switch.is_off = False
    replica = await starting
    assert replica.scheduler.ready.is_set()
    await clock.sleep(timedelta(seconds=10))
    assert replica.scheduler.mode.mode is OperatingMode.NORMAL
    await cluster.stop()


@virtual_time()
async def test_older_store_after_a_restart_is_recovery(clock: VirtualClock) -> None:
    """E03: a store that was put back to an older state while the scheduler was down is recovery,
    for what the replica remembers beside the store; nothing is sent to any agent."""
    cluster, driver = await _cluster(clock, Switch())
    older = cluster.backend.snapshot()
    for number in range(6, 9):
        await driver.apply(f"w{number}")
    await driver.wait(seconds=30)
    before = _calls(driver)
    await cluster.stop_replica(cluster.replicas[0])
    cluster.backend.restore(older)
    replica = await cluster.start_replica()
    await driver.wait(minutes=2)
    assert replica.scheduler.mode.mode.value == "recovery"
    assert "went back" in replica.scheduler.mode.reason
    assert _calls(driver) == before
    await cluster.stop()


@virtual_time()
async def test_emptied_store_after_a_restart_is_recovery(clock: VirtualClock) -> None:
    """E04: a store that was emptied while the scheduler was down is not a new cluster."""
    cluster, driver = await _cluster(clock, Switch())
    before = _calls(driver)
    await cluster.stop_replica(cluster.replicas[0])
    cluster.backend.restore(MemoryClusterBackend().snapshot())
    replica = await cluster.start_replica()
    await driver.wait(minutes=2)
    assert replica.scheduler.mode.mode.value == "recovery"
    assert _calls(driver) == before
    with pytest.raises(FrozenError):
        await driver.apply("x")
    await cluster.stop()


@virtual_time()
async def test_a_store_that_went_back_and_grew_on_is_not_whole(clock: VirtualClock) -> None:
    """A restored store is written to, and soon counts as far as it did: that proves nothing, also
    not after a restart of ours. What was lost does prove it once it is there again."""
    cluster, driver = await _cluster(clock, Switch())
    cluster.config = evolve(cluster.config, orphan_policy=OrphanPolicy.DELETE)
    backup = cluster.backend.snapshot()
    for number in range(3):
        await driver.apply(f"later{number}")
    await driver.wait(seconds=30)
    whole, calls = cluster.backend.snapshot(), _calls(driver)
    cluster.backend.restore(backup)
    await driver.wait(seconds=10)
    assert cluster.api().mode.mode is OperatingMode.RECOVERY
    foreign = MemoryClusterStore(cluster.backend)
    while cluster.backend.revision < whole.revision + 100:
        key = Key.leader(f"{cluster.backend.revision}")
        await foreign.commit(Commit((), (Put(key, LeaderRecord("other", "x")),), "foreign"))
    await driver.wait(minutes=2)
    assert cluster.api().mode.mode is OperatingMode.RECOVERY
    await cluster.stop_replica(cluster.replicas[0])
    await cluster.start_replica()
    await driver.wait(minutes=2)
    assert cluster.api().mode.mode is OperatingMode.RECOVERY
    assert _calls(driver) == calls
    cluster.backend.restore(whole)
    await driver.wait(minutes=2)
    assert cluster.api().mode.mode is OperatingMode.NORMAL
    assert [await driver.status(f"later{number}") for number in range(3)] == ["Running"] * 3
    assert _calls(driver) == calls
    await cluster.stop()


@virtual_time()
async def test_a_store_that_went_back_while_nobody_looked_is_noticed(clock: VirtualClock) -> None:
    """It was restored, and written to by others, while this replica was down: a record that stands
    at a lower revision than it was seen at shows it."""
    cluster, driver = await _cluster(clock, Switch())
    backup = cluster.backend.snapshot()
    for number in range(3):
        await driver.apply(f"later{number}")
    await driver.wait(seconds=30)
    calls, seen = _calls(driver), cluster.backend.revision
    await cluster.stop_replica(cluster.replicas[0])
    cluster.backend.restore(backup)
    foreign = MemoryClusterStore(cluster.backend)
    while cluster.backend.revision < seen + 100:
        key = Key.leader(f"{cluster.backend.revision}")
        await foreign.commit(Commit((), (Put(key, LeaderRecord("other", "x")),), "foreign"))
    await cluster.start_replica()
    await driver.wait(minutes=1)
    assert cluster.api().mode.mode is OperatingMode.RECOVERY
    assert _calls(driver) == calls
    await cluster.stop()
