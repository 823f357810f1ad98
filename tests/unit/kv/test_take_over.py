"""A cluster of the reference is taken over in place: all of it, and nothing that runs is touched.

The store is the corpus, the machines run what it says, and the scheduler is the real one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.contract import Txn, TxnResult
from persys_adapters.kv.dict_kv import DictKv
from persys_adapters.records.codec import decode
from persys_core.control.answers import ApplyOutcomeKind
from persys_core.control.ledger_audit import ledger_differences
from persys_core.control.requests import AcknowledgeEmpty
from persys_core.model.states import DesiredState, OperatingMode, WorkloadStatus, WorkloadType
from persys_core.model.workload import Workload
from persys_core.modes.evidence import Known
from persys_core.nodes.liveness import NodeCondition
from persys_core.ports.agents import ApplyRequest
from persys_core.ports.cluster_store import Guarantee, Key, Kind
from persys_core.ports.observer import Metric
from persys_core.sim.agent_settings import existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import SimulatedCluster
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container
from tests.corpus import reference_etcd as reference
from tests.corpus.reference_records import revision

pytestmark = pytest.mark.slow

GUARANTEES = Guarantee.CAS | Guarantee.WATCH | Guarantee.SHARED
ALL_TYPES = frozenset(WorkloadType)
TOUCHED = ("apply", "delete", "created", "started", "stopped", "removed", "volume_deleted")


class SlowKv(DictKv):
    """Each transaction takes a few milliseconds, so that something can happen in between."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(page_size=50)
        self.clock = clock

    async def txn(self, txn: Txn) -> TxnResult:
        await self.clock.sleep(timedelta(milliseconds=5))
        return await super().txn(txn)


class Takeover(Driver):
    """A scheduler of ours on a store of the reference, with machines that run its work."""

    def __init__(self, clock: VirtualClock, keys: dict[bytes, bytes]) -> None:
        self.kv: DictKv = SlowKv(clock)
        self.keys = keys
        store = KvClusterStore(self.kv, GUARANTEES)
        super().__init__(SimulatedCluster(clock, wrap_store=lambda _: store), clock)

    async def run_work(self) -> None:
        """Fill the store, and have every machine run what the reference had it run."""
        await self.kv.txn(Txn(puts=tuple(self.keys.items())))
        now = self.clock.now()
        for node_id in sorted(reference.RUNNING):
            settings = evolve(existing_agent(node_id), workload_types=ALL_TYPES, queue_depth=99)
            model = self.cluster.machines.add(evolve(settings, cpu_millicores=32_000))
            for workload_id in reference.RUNNING[node_id]:
                model.apply(self.request(workload_id, DesiredState.RUNNING), now)
            for workload_id in reference.STOPPED.get(node_id, ()):
                model.apply(self.request(workload_id, DesiredState.STOPPED), now)
        await self.wait(minutes=10)
        for model in self.cluster.machines:
            running = model.running(self.clock.now())
            assert running.keys() == set(reference.RUNNING[model.settings.node_id])
            model.journal.entries.clear()

    def request(self, workload_id: str, desired: DesiredState) -> ApplyRequest:
        key = Key.workload(workload_id)
        places = (f"/workloads-spec/{workload_id}", f"/workloads/{workload_id}")
        raw = next(self.keys[path.encode()] for path in places if path.encode() in self.keys)
        workload = decode(key, raw).record
        assert isinstance(workload, Workload)
        return ApplyRequest(workload_id, workload.revision_id, desired, workload.spec, 0)

    async def begin(self) -> None:
        """Start the scheduler, and let the agents come to it."""
        await self.cluster.start_replica()
        await self.begin_agents()

    async def begin_agents(self) -> None:
        """The agents find the scheduler."""
        for node_id in sorted(reference.RUNNING):
            cluster = self.cluster
            cluster.machines.connect(node_id, cluster._register, cluster._heartbeat)

    def touched(self) -> dict[str, list[str]]:
        """What was done to work on machines, by workload."""
        found: dict[str, list[str]] = {}
        for model in self.cluster.machines:
            for entry in model.journal.entries:
                if entry.what in TOUCHED:
                    found.setdefault(entry.workload_id, []).append(entry.what)
        return found

    def stored(self, path: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.kv.entries[path.encode()].value)
        return value

    def mode(self) -> OperatingMode:
        return self.cluster.api().mode.mode

    @property
    def bugs(self) -> float:
        return sum(replica.observer.count(Metric.BUGS) for replica in self.cluster.replicas)


@asynccontextmanager
async def taken_over(
    clock: VirtualClock, keys: dict[bytes, bytes] | None = None
) -> AsyncIterator[Takeover]:
    """The corpus under a scheduler of ours for a minute; fails the test if a bug was counted."""
    driver = Takeover(clock, reference.corpus() if keys is None else keys)
    await driver.run_work()
    await driver.begin()
    await driver.wait(minutes=1)
    try:
        yield driver
    finally:
        await driver.cluster.stop()
    assert driver.bugs == 0


def everything_running() -> set[str]:
    return {each for ids in reference.RUNNING.values() for each in ids}


@virtual_time()
async def test_nothing_that_runs_is_touched(clock: VirtualClock) -> None:
    """No agent is told anything about work that runs as wished, in five minutes and a restart."""
    async with taken_over(clock) as driver:
        await driver.wait(minutes=4)
        await driver.cluster.stop_replica(driver.cluster.replicas[0])
        await driver.cluster.start_replica()
        await driver.wait(minutes=1)
        assert driver.touched().keys() & everything_running() == set()
        for node_id, ids in reference.RUNNING.items():
            model = driver.cluster.machines.model(node_id)
            assert model.running(clock.now()).keys() >= set(ids)
        assert driver.mode() is OperatingMode.NORMAL


@virtual_time()
async def test_everything_is_listed_and_settles(clock: VirtualClock) -> None:
    """Both layouts are listed once per id, each on its node and Running."""
    async with taken_over(clock) as driver:
        for node_id, ids in reference.RUNNING.items():
            for workload_id in ids:
                view = await driver.view(workload_id)
                assert view.status.status is WorkloadStatus.RUNNING, workload_id
                assert await driver.node_of(workload_id) == node_id
        assert await driver.status("resting") == "Stopped"
        assert await driver.status("done") == "Completed"


@virtual_time()
async def test_the_ledger_is_built(clock: VirtualClock) -> None:
    """Every placed workload is charged where it is; the sums are right, and new work is placed."""
    async with taken_over(clock) as driver:
        view = driver.cluster.api().view
        ready = view.ledger()
        assert ready is not None
        assert ready.value.ready
        assert ledger_differences(view) == {}
        for node_id, ids in reference.RUNNING.items():
            for workload_id in ids:
                assignment = view.assignment(workload_id)
                assert assignment is not None
                assert assignment.value.node_id == node_id
                assert not assignment.value.released
                if workload_id not in ("bare", "box", "fire"):
                    assert assignment.value.charged.cpu_millicores >= 250 or "shop" in workload_id
        done = view.assignment("done")
        assert done is not None
        assert done.value.released
        await driver.apply("new")
        assert await driver.node_of("new")


@virtual_time()
async def test_what_ended_stays_ended(clock: VirtualClock) -> None:
    """What completed, rests or was given up is not started again, and holds what it held."""
    async with taken_over(clock) as driver:
        assert {"done", "failed", "resting"} & driver.touched().keys() == set()
        failed = await driver.view("failed")
        assert failed.status.status is WorkloadStatus.FAILED
        assert failed.status.reason is not None
        assert failed.status.reason.code == "invalid_image"
        view = driver.cluster.api().view
        charged = {id_: view.assignment(id_) for id_ in ("done", "failed", "resting")}
        assert [each and each.value.released for each in charged.values()] == [True, True, False]


@virtual_time()
async def test_what_waits_is_placed(clock: VirtualClock) -> None:
    """Work on no node, and work on a node that nobody knows, gets one like any other."""
    async with taken_over(clock) as driver:
        for workload_id in ("waiting", "old-waiting", "homeless"):
            assert await driver.status(workload_id) == "Running"
            assert driver.touched()[workload_id].count("apply") == 1
        assert driver.cluster.api().view.allocation("n-gone") is None


@virtual_time()
async def test_a_delete_that_was_under_way_is_finished(clock: VirtualClock) -> None:
    """An old object whose delete was asked for is deleted, and no key of it is left."""
    async with taken_over(clock) as driver:
        assert reference.keys_of(driver.kv.entries, "old-deleted") == []


@virtual_time()
@pytest.mark.parametrize(
    "workload_id", ["web", "db", "old-web", "old-unassigned", "both", "logs", reference.ODD_ID]
)
async def test_a_delete_leaves_no_key(clock: VirtualClock, workload_id: str) -> None:
    """Whatever layout it stands in, a deleted workload leaves nothing in the store (U01)."""
    async with taken_over(clock) as driver:
        await driver.cluster.api().admission.delete_workload(workload_id, force=False)
        await driver.wait(minutes=2)
        assert "removed" in driver.touched()[workload_id]
        assert reference.keys_of(driver.kv.entries, workload_id) == []


@virtual_time()
async def test_what_cannot_be_read_is_shown_and_kept(clock: VirtualClock) -> None:
    """Each is counted and named, keeps its bytes, and what runs of it is left alone."""
    keys = reference.corpus()
    async with taken_over(clock) as driver:
        snapshot = await driver.cluster.replicas[0].scheduler.ports.store.snapshot()
        assert set(snapshot.quarantined) == set(reference.QUARANTINED)
        for path in reference.QUARANTINED:
            assert driver.kv.entries[path.encode()].value == keys[path.encode()]
        for id_ in ("broken", "wasm"):
            for folder in ("/workloads-status/", "/assignments/"):
                key = f"{folder}{id_}".encode()
                assert driver.kv.entries[key].value == keys[key]


@virtual_time()
async def test_a_node_that_cannot_be_read_has_not_left(clock: VirtualClock) -> None:
    """Its work waits for it, however long, and is charged there: a copy elsewhere would be a
    second one. Workloads with a broken part are let be, and hold up nobody."""
    async with taken_over(clock) as driver:
        await driver.wait(minutes=15)
        for workload_id in ("on-broken-node", "no-word", "no-place"):
            assert workload_id not in driver.touched()
        scheduler = driver.cluster.api()
        assert scheduler.node_views.condition("n6") is NodeCondition.NOT_READY
        allocation = scheduler.view.allocation("n6")
        assert allocation is not None
        assert allocation.value.charged.cpu_millicores == 250


@virtual_time()
async def test_remains_without_a_spec_are_left_until_it_is_back(clock: VirtualClock) -> None:
    """A status or an assignment alone is no workload and no charge; an apply takes it up."""
    async with taken_over(clock) as driver:
        view = driver.cluster.api().view
        listed = set(view.all(Kind.WORKLOAD))
        assert listed & {"no-spec", "no-workload"} == set()
        allocation = view.allocation("n1")
        assert allocation is not None
        for workload_id in ("no-spec", "no-workload"):
            await driver.apply(workload_id)
            await driver.wait(minutes=1)
            assert await driver.status(workload_id) == "Running"
        assert await driver.node_of("no-workload") == "n1"
        assert ledger_differences(view) == {}


@virtual_time()
async def test_unknown_fields_survive_the_take_over(clock: VirtualClock) -> None:
    """At the top and inside, of nodes, specs and statuses, in both layouts (U01)."""
    async with taken_over(clock) as driver:
        spec, status = driver.stored("/workloads-spec/web"), driver.stored("/workloads-status/web")
        await driver.desire("web", DesiredState.STOPPED)
        await driver.wait(minutes=1)
        spec = driver.stored("/workloads-spec/web")
        assert spec["desiredState"] == "Stopped"
        assert (spec["futureField"], spec["resources"]["futureField"]) == (1, 1)
        assert spec["network"] == "bridge"
        assert (status["futureField"], status["retry"]["futureField"]) == (1, 1)
        assert status["statusInfo"]["futureField"] == 1
        assert status["statusInfo"]["reason"]["futureField"] == 1
        assert status["metadata"]["futureList"] == ["a"]
        assert driver.stored("/workloads-spec/old-web")["futureField"] == {"a": 1}
        assert driver.stored("/nodes/n1")["futureField"] == {"of": ["a later release"]}
        assert driver.stored("/workloads-spec/git")["gitToken"] == "t0ken"


@virtual_time()
async def test_logs_without_end_do_not_stop_anything(clock: VirtualClock) -> None:
    """The last lines of a megabyte of logs are kept, so the record can be written (C5)."""
    async with taken_over(clock) as driver:
        logs = driver.stored("/workloads-status/logs")["logs"]
        assert logs.count("\n") == 50
        assert len(logs) <= 8192
        assert logs.startswith("[2025-12-01 10:00:00] ")


@virtual_time()
async def test_volumes_that_fell_out_of_a_spec_are_back(clock: VirtualClock) -> None:
    """A container's managed volumes are those that it has attached (A1); none is let go of."""
    async with taken_over(clock) as driver:
        view = driver.cluster.api().view
        workload, volume = view.workload("db"), view.volume("nfs:data")
        assert workload is not None
        assert volume is not None
        (wanted,) = workload.value.spec.managed_volumes
        assert (wanted.name, wanted.driver, wanted.mount_path) == ("data", "nfs", "/data")
        assert volume.value.workload_refs == ("db",)
        assert volume.value.claim is not None
        assert (volume.value.claim.workload_id, volume.value.claim.node_id) == ("db", "n1")
        assert set(view.all(Kind.VOLUME)) >= {"disk-1", "nfs:kept"}


@virtual_time()
async def test_an_old_revision_is_kept_while_nothing_changes(clock: VirtualClock) -> None:
    """Revisions of the reference are none of ours: the same wish again restarts nothing, and a
    stop and a start use the revision that the agent knows."""
    async with taken_over(clock) as driver:
        for workload_id in ("web", "db", "old-web", "shop"):
            spec = (await driver.view(workload_id)).workload.spec
            answer = await driver.apply(workload_id, evolve(spec, metadata={"team": "shop"}))
            assert answer.outcome is ApplyOutcomeKind.UNCHANGED
            assert (await driver.view(workload_id)).workload.spec.metadata == {"team": "shop"}
        await driver.wait(minutes=1)
        assert driver.touched().keys() & everything_running() == set()
        await driver.desire("web", DesiredState.STOPPED)
        await driver.wait(minutes=1)
        await driver.desire("web", DesiredState.RUNNING)
        await driver.wait(minutes=1)
        assert Counter(driver.touched()["web"]) == {"apply": 2, "stopped": 1, "started": 1}
        assert (await driver.view("web")).workload.revision_id == revision("web")


@virtual_time()
async def test_wishes_beside_the_status_count(clock: VirtualClock) -> None:
    """Placement metadata, which the reference keeps with the status, is of the spec again."""
    async with taken_over(clock) as driver:
        box = (await driver.view("box")).workload
        assert box.spec.metadata["persys.scheduling.persistence_class"] == "node-local"
        assert (await driver.view("box")).status.data_node_id == "n2"
        assert "vm.primary_ip" not in box.spec.metadata
        assert (await driver.view("web")).status.data_node_id == ""


@virtual_time()
async def test_a_drain_goes_on(clock: VirtualClock) -> None:
    """A draining node stays so, its pinned work stays there, and a taint keeps work away."""
    async with taken_over(clock) as driver:
        view = driver.cluster.api().view
        draining, tainted = view.node("n2"), view.node("n3")
        assert draining is not None
        assert tainted is not None
        assert draining.value.intent.draining
        assert [taint.key for taint in tainted.value.intent.taints] == ["gpu", "old"]
        for number in range(6):
            await driver.apply(f"new-{number}")
            assert await driver.node_of(f"new-{number}") not in ("n2", "n3")


@virtual_time()
async def test_a_leader_that_falls_leaves_nothing_to_undo(clock: VirtualClock) -> None:
    """A take-over that ends after any of its commits is gone on with, and comes out the same."""
    for commits in (1, 2, 5, 9):
        driver = Takeover(clock, reference.corpus())
        await driver.run_work()
        until = await driver.kv.revision() + 2 + commits
        first = await driver.cluster.start_replica()
        while await driver.kv.revision() < until:
            await driver.wait(milliseconds=1)
        await driver.cluster.crash(first)
        ledger = first.scheduler.view.ledger()
        assert ledger is not None
        assert not ledger.value.ready
        await driver.begin()
        await driver.wait(minutes=2)
        view = driver.cluster.api().view
        await driver.cluster.stop()
        assert ledger_differences(view) == {}
        allocation = view.allocation("n3")
        assert allocation is not None
        assert allocation.value.workload_count == 3
        assert driver.touched().keys() & everything_running() == set()
        assert driver.bugs == 0


@virtual_time()
async def test_nothing_is_given_up_before_its_place_is_known(clock: VirtualClock) -> None:
    """A delete that comes before the take-over waits for it: an old object names no assignment."""
    driver = Takeover(clock, reference.corpus())
    await driver.run_work()
    replica = await driver.cluster.start_replica()
    await replica.scheduler.admission.delete_workload("old-unassigned", force=False)
    view = replica.scheduler.view
    ledger = view.ledger()
    assert ledger is not None
    assert not ledger.value.ready
    assert view.workload("old-unassigned") is not None
    assert view.assignment("old-unassigned") is None
    await driver.begin_agents()
    await driver.wait(minutes=2)
    await driver.cluster.stop()
    assert "removed" in driver.touched()["old-unassigned"]
    assert reference.keys_of(driver.kv.entries, "old-unassigned") == []
    assert driver.bugs == 0


@virtual_time()
async def test_nothing_is_charged_before_the_ledger_is_ready(clock: VirtualClock) -> None:
    """A larger spec that comes before the take-over is charged by it, and by nobody else."""
    driver = Takeover(clock, reference.corpus())
    await driver.run_work()
    replica = await driver.cluster.start_replica()
    await driver.apply("web", container("nginx:2", cpu=2000))
    view = replica.scheduler.view
    ledger = view.ledger()
    assert ledger is not None
    assert not ledger.value.ready
    assert view.allocation("n1") is None
    await driver.begin_agents()
    await driver.wait(minutes=1)
    held = view.assignment("web")
    assert held is not None
    assert held.value.charged.cpu_millicores == 2000
    assert ledger_differences(view) == {}
    assert await driver.status("web") == "Running"
    await driver.cluster.stop()


@virtual_time()
async def test_a_ledger_state_that_was_removed_is_written_again(clock: VirtualClock) -> None:
    """By hand, under a running scheduler: it is built anew, and placing goes on."""
    async with taken_over(clock) as driver:
        await driver.kv.txn(Txn(deletes=(b"/persys/ledger",)))
        await driver.wait(seconds=5)
        ledger = driver.cluster.api().view.ledger()
        assert ledger is not None
        assert ledger.value.ready
        await driver.apply("new", container(cpu=10))
        await driver.wait(minutes=1)
        assert await driver.status("new") == "Running"


@virtual_time()
async def test_a_store_that_an_operator_takes_is_taken_over_too(clock: VirtualClock) -> None:
    """Where this replica knew another cluster it asks first; then nothing that runs is touched."""
    driver = Takeover(clock, reference.corpus())
    await driver.run_work()
    await driver.cluster.memory.save(Known("another"))
    await driver.begin()
    await driver.wait(minutes=1)
    scheduler = driver.cluster.api()
    assert driver.mode() is OperatingMode.RECOVERY
    assert driver.touched() == {}
    await scheduler.recovery.acknowledge_empty(AcknowledgeEmpty("it is ours now", "me"))
    await driver.wait(minutes=3)
    assert driver.mode() is OperatingMode.NORMAL
    assert ledger_differences(scheduler.view) == {}
    assert driver.touched().keys() & everything_running() == set()
    for workload_id in everything_running():
        assert await driver.status(workload_id) == "Running"
    await driver.cluster.stop()
    assert driver.bugs == 0


@virtual_time()
async def test_work_without_records_is_recovery(clock: VirtualClock) -> None:
    """Nodes alone, whose agents run work, are a store that was lost, and no fresh cluster (A3)."""
    driver = Takeover(clock, reference.corpus())
    await driver.run_work()
    driver.kv = DictKv()
    await driver.kv.txn(Txn(puts=tuple(reference.nodes().items())))
    store = KvClusterStore(driver.kv, GUARANTEES)
    driver.cluster.wrap_store = lambda _: store
    await driver.begin()
    await driver.wait(minutes=1)
    assert driver.mode() is OperatingMode.RECOVERY
    await driver.cluster.stop()
    assert driver.touched() == {}
