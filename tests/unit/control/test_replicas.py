"""Several replicas: who acts for what, what a change of them costs, and who is refused."""

import asyncio
import itertools
from collections.abc import Collection
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.config import HaConfig, SchedulerConfig
from persys_core.control.presence import HaMismatchError
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.model.drift import OrphanPolicy
from persys_core.model.errors import FrozenError
from persys_core.model.node import Node
from persys_core.model.replica import HaMode, ShardMap
from persys_core.model.states import DesiredState
from persys_core.ports.agents import ApplyRequest
from persys_core.ports.cluster_store import Commit, Expectation, Key, Kind, Put
from persys_core.sharding.hashing import owner_of, shard_of
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import Replica
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

NODES = [f"n{number}" for number in range(8)]
SHARDS = HaConfig(HaMode.ACTIVE_ACTIVE, shard_count=3)
ELASTIC = HaConfig(HaMode.ELASTIC)


def _config(ha: HaConfig) -> SchedulerConfig:
    return SchedulerConfig(ha=ha)


def _machines(names: Collection[str] = NODES) -> list[AgentSettings]:
    return [machine(node) for node in names]


def _up(driver: Driver) -> list[Replica]:
    return [replica for replica in driver.cluster.replicas if replica.is_up]


def _owners(driver: Driver, node_id: str) -> list[str]:
    """Who acts for the node by its own belief, at this moment."""
    return [
        replica.scheduler.instance_id
        for replica in _up(driver)
        if replica.scheduler.acts_for(node_id)
    ]


async def _settled(driver: Driver, *workloads: str, seconds: int = 60) -> None:
    """Every workload runs, once."""
    for _ in range(seconds):
        await driver.wait(seconds=1)
        if all([await driver.status(each) == "Running" for each in workloads]):
            break
    now = driver.clock.now()
    running = sorted(each for model in driver.cluster.machines for each in model.running(now))
    assert running == sorted(workloads)


async def _placed(driver: Driver, count: int = 24) -> list[str]:
    names = [f"w{number}" for number in range(count)]
    for name in names:
        await driver.apply(name, container(cpu=1000))
    await _settled(driver, *names)
    return names


# Who may take part


@virtual_time()
async def test_replicas_see_each_other(clock: VirtualClock) -> None:
    """Each is registered while it is there, and the standing names them all."""
    ha = HaConfig(version="1.2", address="host:8085")
    async with running_cluster(clock, machine("n1"), config=_config(ha), replicas=3) as driver:
        await driver.wait(seconds=5)
        for replica in driver.cluster.replicas:
            standing = replica.scheduler.standing
            assert [each.instance_id for each in standing.replicas] == [
                "replica-0",
                "replica-1",
                "replica-2",
            ]
            assert {(e.version, e.address) for e in standing.replicas} == {("1.2", "host:8085")}
            assert standing.leader_id == "replica-0"
            assert (standing.unowned_nodes, standing.doubly_owned_nodes) == (0, 0)
        roles = [replica.scheduler.standing.role for replica in driver.cluster.replicas]
        assert roles == ["leader", "standby", "standby"]
        await driver.cluster.stop_replica(driver.cluster.replicas[2])
        await driver.cluster.crash(driver.cluster.replicas[1])
        await driver.wait(seconds=20)
        left = driver.cluster.replicas[0].scheduler.standing.replicas
        assert [each.instance_id for each in left] == ["replica-0"]


@pytest.mark.parametrize(
    ("there", "late", "values"),
    [
        (HaConfig(), ELASTIC, ("SCHEDULER_HA_MODE", "failover", "elastic")),
        (SHARDS, ELASTIC, ("SCHEDULER_HA_MODE", "active-active", "elastic")),
        (SHARDS, evolve(SHARDS, shard_count=2), ("SCHEDULER_SHARD_COUNT", "2", "3")),
    ],
)
@virtual_time()
async def test_who_shares_the_work_otherwise_is_refused(
    clock: VirtualClock, there: HaConfig, late: HaConfig, values: tuple[str, ...]
) -> None:
    """Both values are named, nothing is left behind, and those that are there go on (L05)."""
    async with running_cluster(clock, machine("n1"), config=_config(there)) as driver:
        with pytest.raises(HaMismatchError) as refused:
            await driver.cluster.start_replica(late)
        assert all(value in str(refused.value) for value in (*values, "replica-0"))
        assert list(driver.cluster.api().view.all(Kind.REPLICA)) == ["replica-0"]
        await driver.apply("w")
        await driver.wait(seconds=20)
        if there.mode is HaMode.FAILOVER:
            assert await driver.status("w") == "Running"


# Static shards


@virtual_time()
async def test_each_shard_is_driven_by_its_own_replica(clock: VirtualClock) -> None:
    """Every node has the owner that the hash says, and everything runs."""
    config = _config(SHARDS)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        await _placed(driver)
        for node in NODES:
            assert _owners(driver, node) == [f"replica-{shard_of(node, 3)}"]
        assert _owners(driver, "") == ["replica-0"]
        standings = [replica.scheduler.standing for replica in driver.cluster.replicas]
        assert [each.shard for each in standings] == ["0/3", "1/3", "2/3"]
        assert sum(each.owned_nodes for each in standings) == len(NODES)


@virtual_time()
async def test_a_shard_without_a_replica_is_seen_and_comes_back(clock: VirtualClock) -> None:
    """Its nodes count as unowned with every other replica, and only their work stands still
    (L05); a replica that takes the shard goes on with it."""
    config = _config(SHARDS)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        names = await _placed(driver)
        lost = [node for node in NODES if shard_of(node, 3) == 2]
        assert lost
        await driver.cluster.stop_replica(driver.cluster.replicas[2])
        await driver.wait(seconds=10)
        assert driver.cluster.api().standing.unowned_nodes == len(lost)
        (moved, *_) = [name for name in names if await driver.node_of(name) in lost]
        await driver.apply(moved, container("nginx:2", cpu=1000))
        await driver.wait(minutes=1)
        assert await driver.status(moved) != "Running"
        await driver.cluster.start_replica(evolve(SHARDS, shard_index=2))
        await _settled(driver, *names)
        assert driver.cluster.api().standing.unowned_nodes == 0


# Elastic shares


def _by_the_map(driver: Driver, node: str) -> str:
    stored = driver.cluster.backend.read(Key.shard_map())
    assert stored is not None
    assert isinstance(stored.value, ShardMap)
    return owner_of(node, stored.value.members)


@virtual_time()
async def test_nodes_are_spread_over_who_is_there(clock: VirtualClock) -> None:
    """Each node has the owner that the map says, and everything runs, once."""
    config = _config(ELASTIC)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        await _placed(driver)
        for node in ("", *NODES):
            assert _owners(driver, node) == [_by_the_map(driver, node)]
        standing = driver.cluster.api().standing
        assert standing.shard.endswith("3 of 3 members")
        assert (standing.unowned_nodes, standing.doubly_owned_nodes) == (0, 0)


@pytest.mark.slow
@virtual_time()
async def test_a_clean_change_leaves_no_node_alone_for_long(clock: VirtualClock) -> None:
    """A replica joins, another one leaves: below a second, at no moment two owners, and nothing
    that runs is touched."""
    config = _config(ELASTIC)
    async with running_cluster(clock, *_machines(), config=config, replicas=2) as driver:
        names = await _placed(driver)
        calls = driver.calls("apply") + driver.calls("delete")
        await driver.cluster.start_replica()
        assert await _time_unowned(driver) < timedelta(seconds=1)
        assert set(map(len, (_owners(driver, n) for n in NODES))) == {1}
        await driver.cluster.stop_replica(driver.cluster.replicas[0])
        assert await _time_unowned(driver) < timedelta(seconds=1)
        await driver.wait(minutes=2)
        await _settled(driver, *names)
        assert driver.calls("apply") + driver.calls("delete") == calls


async def _time_unowned(driver: Driver) -> timedelta:
    """How long some node has no owner, looked at every few milliseconds; never two owners."""
    began = driver.clock.now()
    step = timedelta(milliseconds=5)
    quiet_since = began
    while driver.clock.now() - began < timedelta(seconds=5):
        owners = [_owners(driver, node) for node in ("", *NODES)]
        assert all(len(found) <= 1 for found in owners)
        await driver.clock.sleep(step)
        if not all(owners):
            quiet_since = driver.clock.now()
    return quiet_since - began


@virtual_time()
async def test_a_dead_members_nodes_go_to_the_others(clock: VirtualClock) -> None:
    """Within its lease, also where it kept the map; what it was doing is done by others."""
    config = _config(ELASTIC)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        names = await _placed(driver, 16)
        for victim in (driver.cluster.replicas[0], driver.cluster.replicas[1]):
            await driver.cluster.crash(victim)
            await driver.wait(seconds=18)
            assert set(map(len, (_owners(driver, n) for n in ("", *NODES)))) == {1}
        await driver.apply("late")
        await _settled(driver, *names, "late")


@virtual_time()
async def test_a_paused_member_keeps_others_waiting_no_longer_than_its_lease(
    clock: VirtualClock,
) -> None:
    """Stopped and continued, it finds that it owns nothing, and joins anew."""
    config = _config(ELASTIC)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        names = await _placed(driver, 16)
        paused = driver.cluster.replicas[1]
        paused.membership.stall()
        await driver.wait(seconds=30)
        assert not any(paused.scheduler.acts_for(node) for node in NODES)
        for node in NODES:
            assert len(_owners(driver, node)) == 1
        paused.membership.resume()
        await driver.wait(seconds=10)
        assert set(map(len, (_owners(driver, n) for n in ("", *NODES)))) == {1}
        assert any(paused.scheduler.acts_for(node) for node in NODES)
        await _settled(driver, *names)


@pytest.mark.slow
@pytest.mark.parametrize("ha", [SHARDS, ELASTIC])
@virtual_time()
async def test_work_of_a_lost_node_goes_to_other_owners(clock: VirtualClock, ha: HaConfig) -> None:
    """The relocation is in the store, so whoever owns the new node goes on at once, and the old
    node owes a delete to its own owner when it comes back."""
    async with running_cluster(clock, *_machines(), config=_config(ha), replicas=3) as driver:
        names = await _placed(driver, 16)
        driver.cluster.machines.kill_agent("n3")
        for _ in range(240):
            await driver.wait(seconds=1)
            if not driver.cluster.api().view.assigned_to("n3"):
                break
        assert not driver.cluster.api().view.assigned_to("n3")
        await driver.wait(seconds=5)
        assert {await driver.status(name) for name in names} == {"Running"}
        driver.cluster.machines.revive("n3")
        await driver.wait(minutes=1)
        await _settled(driver, *names)
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@pytest.mark.slow
@pytest.mark.parametrize("ha", [SHARDS, ELASTIC])
@virtual_time()
async def test_lost_nodes_are_left_one_by_one_whoever_owns_them(
    clock: VirtualClock, ha: HaConfig
) -> None:
    """One pace for the whole cluster: no two nodes within ten seconds."""
    names = [f"n{number}" for number in range(12)]
    config = _config(ha)
    async with running_cluster(clock, *_machines(names), config=config, replicas=3) as driver:
        await _placed(driver, 24)
        victims = [node for node in names if driver.cluster.api().view.assigned_to(node)][:5]
        for node in victims:
            driver.cluster.machines.kill_agent(node)
        began_at: dict[str, timedelta] = {}
        began = clock.now()
        load = {node: len(driver.cluster.api().view.assigned_to(node)) for node in victims}
        for _ in range(2400):
            await driver.clock.sleep(timedelta(milliseconds=100))
            for node in victims:
                if len(driver.cluster.api().view.assigned_to(node)) < load[node]:
                    began_at.setdefault(node, clock.now() - began)
            if len(began_at) == len(victims):
                break
        times = sorted(began_at.values())
        assert len(times) == len(victims)
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert min(gaps) >= timedelta(seconds=9)


# Strangers


@virtual_time()
async def test_a_leader_that_is_not_registered_is_foreign(clock: VirtualClock) -> None:
    """Reads are served, wishes are refused with its name, and nothing is done (decisions §4);
    once it is gone, all is as before."""
    async with running_cluster(clock, machine("n1"), replicas=1) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        stranger = driver.cluster.stranger("reference-1")
        campaign = asyncio.ensure_future(stranger.campaign("scheduler"))
        await driver.cluster.stop_replica(driver.cluster.replicas[0])
        leadership = await campaign
        await driver.cluster.start_replica()
        await driver.wait(seconds=15)
        assert driver.cluster.api().standing.foreign_leader == "reference-1"
        assert await driver.status("w") == "Running"
        with pytest.raises(FrozenError, match="reference-1 leads this cluster"):
            await driver.apply("v")
        with pytest.raises(FrozenError, match="reference-1"):
            await driver.cluster.api().admission.delete_workload("w", force=False)
        await stranger.resign(leadership)
        await driver.wait(seconds=15)
        assert driver.cluster.api().standing.foreign_leader == ""
        await driver.apply("v")
        await driver.wait(seconds=20)
        assert await driver.status("v") == "Running"
        stranger.close()


@virtual_time()
async def test_a_write_without_a_token_of_ours_is_told(clock: VirtualClock) -> None:
    """Once in a while, with the record; what replicas write for each other is none."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        await driver.apply("w")
        await driver.wait(minutes=1)
        assert not await driver.events("ForeignWriter")
        store = MemoryClusterStore(driver.cluster.backend)
        for number in range(3):
            stored = driver.cluster.backend.read(Key.node("n1"))
            assert stored is not None
            assert isinstance(stored.value, Node)
            changed = evolve(stored.value, endpoint=f"elsewhere:{number}")
            expected = Expectation(Key.node("n1"), revision=stored.revision)
            await store.commit(Commit((expected,), (Put(Key.node("n1"), changed),), ""))
            await driver.wait(seconds=1)
        told = await driver.events("ForeignWriter")
        assert {event.details["key"] for event in told} == {"node/n1"}
        assert len(told) <= len(driver.cluster.replicas)


@virtual_time()
async def test_a_clean_stop_does_not_wait_for_an_agent_that_hangs(clock: VirtualClock) -> None:
    """What is under way is cut off after half a second, and another replica leads at once."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        driver.cluster.machines.pause("n1")
        await driver.apply("w", container("nginx:2"))
        await driver.wait(seconds=1)
        began = clock.now()
        await driver.cluster.stop_replica(driver.cluster.replicas[0])
        await driver.wait(seconds=0.2)
        assert clock.now() - began < timedelta(seconds=1)
        assert driver.cluster.replicas[1].scheduler.is_leader


@pytest.mark.slow
@pytest.mark.parametrize("ha", [SHARDS, ELASTIC])
@virtual_time()
async def test_a_superfluous_copy_goes_although_the_sound_one_is_anothers(
    clock: VirtualClock, ha: HaConfig
) -> None:
    """Under the policy ``delete`` the owner of a node with a second copy asks the node where the
    workload belongs (simulator, seed 102, active-active)."""
    config = evolve(_config(ha), orphan_policy=OrphanPolicy.DELETE)
    async with running_cluster(clock, *_machines(), config=config, replicas=3) as driver:
        names = await _placed(driver)
        await driver.wait(minutes=2)
        for number, name in enumerate(names[: len(NODES)]):
            home = await driver.node_of(name)
            other = next(node for node in NODES[number:] + NODES if node != home)
            revision = (await driver.view(name)).workload.revision_id
            copy = ApplyRequest(name, revision, DesiredState.RUNNING, container(), 0)
            driver.cluster.machines.model(other).apply(copy, clock.now())
        await driver.wait(minutes=5)
        await _settled(driver, *names)


@virtual_time()
async def test_a_node_that_returns_to_a_new_leader_is_called_soon(clock: VirtualClock) -> None:
    """It has a fresh lease with the new leader, and beats at another replica: nothing tells that it
    is back, so it is called again and again, and not left alone for longer and longer (chaos run,
    seed 5)."""
    async with running_cluster(clock, machine("n1"), replicas=2) as driver:
        names = [f"w{number}" for number in range(4)]
        for name in names:
            await driver.apply(name, container(cpu=500))
        await driver.wait(seconds=20)
        driver.cluster.machines.kill("n1")
        await driver.cluster.crash(driver.cluster.replicas[0])
        for name in names:
            await driver.apply(name, container("nginx:2", cpu=500))
        await driver.wait(seconds=21)
        second = driver.cluster.replicas[1].scheduler
        assert second.is_leader
        second.reach.heard = lambda node_id: None  # type: ignore[method-assign]
        await driver.wait(seconds=19)
        driver.cluster.machines.revive("n1")
        applies = driver.calls("apply")
        await driver.wait(seconds=16)
        assert driver.calls("apply") > applies
