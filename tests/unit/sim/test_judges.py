"""The judges of the simulator, one by one: what they let pass and what they do not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.config import SchedulerConfig
from persys_core.memory.cluster_store import MemoryClusterBackend
from persys_core.memory.liveness import MemoryLiveness
from persys_core.model.cluster import ClusterMarker
from persys_core.model.drift import DriftRecord, DriftType
from persys_core.model.node import OperatorIntent
from persys_core.model.resources import Resources
from persys_core.model.spec import spec_revision
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import Assignment, Reason, StatusRecord, Tombstone, Workload
from persys_core.ports.cluster_store import Commit, Delete, Key, Put, Record
from persys_core.sim.clock import VirtualClock
from persys_core.sim.feasibility import Feasibility
from persys_core.sim.history import History, clock_text
from persys_core.sim.invariants import Scene
from persys_core.sim.invariants_calls import wanted
from persys_core.sim.invariants_ledger import capacity
from persys_core.sim.invariants_liveness import Overdue, unsettled
from persys_core.sim.invariants_orphans import orphans_left
from persys_core.sim.journal_reader import one_copy
from persys_core.sim.mirror import Mirror, Step
from persys_core.sim.wishes import ABSENT, Wish, Wishes
from persys_core.testing.virtual import virtual_time
from tests.builders import START, container, make_node

SPEC = container(cpu=1000)
REVISION = spec_revision(SPEC)


class Court:
    """A scene with a store that is written to directly."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.backend = MemoryClusterBackend()
        self.steps: list[Step] = []
        self.backend.on_commit(self._follow)
        self.scene = Scene(
            Mirror(self.backend),
            Wishes(),
            MemoryLiveness(clock),
            SchedulerConfig(),
            clock.now,
            lambda node_id: None,
            lambda node_id, workload_id: workload_id not in self.scene.running.get(node_id, {}),
        )

    def _follow(self, commit: Commit, revision: int) -> None:
        self.steps.append(self.scene.mirror.take(commit, revision, self.clock.now()))

    def put(self, *records: tuple[Key, Record]) -> Step:
        writes = tuple(Put(key, value) for key, value in records)
        self.backend.apply(Commit((), writes, "t"))
        return self.steps[-1]

    def place(self, cpu: int, *, workload: str = "w", node: str = "n1") -> Step:
        charged = Resources.of(cpu_millicores=cpu)
        placed = Assignment(workload, "u", node, charged, "", START)
        return self.put((Key.assignment(workload), placed))

    def bury(self, grave: Tombstone) -> Step:
        """The assignment is given up for a tombstone."""
        key = Key.tombstone(grave.node_id, grave.workload_id)
        writes = (Put(key, grave), Delete(Key.assignment(grave.workload_id)))
        self.backend.apply(Commit((), writes, "t"))
        return self.steps[-1]

    def wish(self, *, status: WorkloadStatus = WorkloadStatus.RUNNING) -> None:
        workload = Workload("w", "u", SPEC, REVISION, DesiredState.RUNNING, START, START)
        record = StatusRecord("w", "u", status, START)
        self.put((Key.workload("w"), workload), (Key.status("w"), record))

    def open_node(self, node_id: str = "n1", *, cpu: int = 4000) -> None:
        marker = self.scene.mirror.get(Key.marker())
        if marker is None:
            self.put((Key.marker(), ClusterMarker("c", START)))
            marker = self.scene.mirror.get(Key.marker())
        assert marker is not None
        node = evolve(make_node(node_id, cpu=cpu), listed_under=marker.create_revision)
        self.put((Key.node(node_id), node))


def texts(findings: Iterator[object]) -> list[str]:
    return [str(getattr(each, "text", getattr(each, "what", ""))) for each in findings]


@virtual_time()
async def test_what_stands_above_capacity_may_stay_and_shrink(clock: VirtualClock) -> None:
    """Rule 1 is about raising: a node that shrank loses nothing and may be relieved."""
    court = Court(clock)
    court.open_node(cpu=4000)
    assert not texts(capacity(court.scene, court.place(4000)))
    court.open_node(cpu=2000)
    assert not texts(capacity(court.scene, court.place(3000)))
    assert texts(capacity(court.scene, court.place(3500))) == [
        "cpu of n1 rose from 3000 to 3500, and it has 2000"
    ]


@virtual_time()
async def test_a_tombstone_is_charged_like_an_assignment(clock: VirtualClock) -> None:
    """A share moves from the assignment to the tombstone without being counted twice."""
    court = Court(clock)
    court.open_node()
    court.place(3000)
    grave = Tombstone("n1", "w", "u", REVISION, Resources.of(cpu_millicores=3000), START)
    step = court.put((Key.tombstone("n1", "w"), grave))
    assert texts(capacity(court.scene, step)) == [
        "cpu of n1 rose from 3000 to 6000, and it has 4000"
    ]
    assert court.scene.mirror.charges("n1").shares == 2
    assert court.scene.mirror.recount()["n1"] == court.scene.mirror.charges("n1")


@virtual_time()
async def test_two_copies_need_a_tombstone(clock: VirtualClock) -> None:
    """Rule 2: the older copy is covered, or a stray message or a forced delete made it."""
    court = Court(clock)
    scene = court.scene
    scene.running = {"n1": {"w": "r"}, "n2": {"w": "r"}}
    assert len(texts(one_copy(scene, "n2", "w"))) == 1
    scene.strays.add(("n1", "w"))
    assert not texts(one_copy(scene, "n2", "w"))
    scene.strays.clear()
    court.put((Key.tombstone("n1", "w"), Tombstone("n1", "w", "u", "r", Resources(), START)))
    assert not texts(one_copy(scene, "n2", "w"))
    scene.running["n3"] = {"w": "r"}
    assert len(texts(one_copy(scene, "n3", "w"))) == 1
    scene.wishes.force("w")
    assert not texts(one_copy(scene, "n3", "w"))


def test_an_acknowledged_request_leaves_one_right_state() -> None:
    """Rule 6: before the answer both are right, after a refusal the old one, and so on."""
    wishes, wish = Wishes(), Wish(REVISION, DesiredState.RUNNING)
    stored = Workload("w", "u", SPEC, REVISION, DesiredState.RUNNING, START, START)
    assert not wishes.contradiction("w", None)
    assert wishes.contradiction("w", stored)
    before = wishes.may_become("w", wish)
    assert not wishes.contradiction("w", None)
    assert not wishes.contradiction("w", stored)
    wishes.did_not("w", before)
    assert wishes.contradiction("w", stored)
    wishes.may_become("w", wish)
    wishes.became("w", wish)
    assert "nothing" in wishes.contradiction("w", None)
    assert not wishes.wants_delete("w")
    wishes.may_become("w", ABSENT)
    assert wishes.wants_delete("w")


def test_an_operators_word_stands() -> None:
    """Rule 6 for nodes: what was acknowledged, and nothing else."""
    wishes, node = Wishes(), make_node("n1")
    cordoned = evolve(node, intent=OperatorIntent(cordoned=True))
    assert not wishes.node_contradiction("n1", None)
    wishes.registered("n1")
    assert wishes.node_contradiction("n1", None)
    assert wishes.node_contradiction("n1", cordoned)
    wishes.set_cordon("n1", True)
    assert not wishes.node_contradiction("n1", cordoned)
    assert wishes.node_contradiction("n1", node)


def test_a_node_that_was_removed_may_be_gone_or_new() -> None:
    """Rule 6 for nodes: its agent registers it anew, without any order; a refusal changes
    nothing."""
    wishes, node = Wishes(), make_node("n1")
    cordoned = evolve(node, intent=OperatorIntent(cordoned=True))
    wishes.registered("n1")
    wishes.set_cordon("n1", True)
    before = wishes.may_remove("n1")
    assert not any(wishes.node_contradiction("n1", each) for each in (None, node, cordoned))
    wishes.left_alone("n1", before, None, False)
    assert wishes.node_contradiction("n1", None)
    assert wishes.node_contradiction("n1", node)
    asked = wishes.may_register("n1")
    wishes.may_remove("n1")
    wishes.removed("n1")
    assert wishes.node_contradiction("n1", cordoned)
    wishes.registered("n1", asked)
    assert not wishes.node_contradiction("n1", None), "that registration may have come before"
    wishes.registered("n1", wishes.may_register("n1"))
    assert wishes.node_contradiction("n1", None)


@virtual_time()
async def test_what_runs_as_wished_is_settled(clock: VirtualClock) -> None:
    """Rule 8: record and machine must both say so."""
    court = Court(clock)
    court.open_node()
    court.wish()
    court.place(1000)
    court.scene.running = {"n1": {"w": REVISION}}
    assert not texts(unsettled(court.scene))
    court.scene.running = {"n1": {"w": "older"}}
    assert texts(unsettled(court.scene)) == ["it does not run: Running"]
    court.wish(status=WorkloadStatus.UPDATING)
    court.scene.running = {"n1": {"w": REVISION}}
    assert texts(unsettled(court.scene)) == ["it runs and its status is Updating"]


@virtual_time()
async def test_what_waits_to_grow_is_settled_while_its_old_revision_runs(
    clock: VirtualClock,
) -> None:
    """Rule 8: without it, only its data may keep the workload on a node without room."""
    court = Court(clock)
    court.open_node(cpu=1000)
    court.place(500)
    court.wish(status=WorkloadStatus.PENDING)
    status = court.scene.mirror.status("w")
    assert status is not None
    court.put((Key.status("w"), evolve(status, reason=Reason("resize:cpu", "", START))))
    court.place(500, workload="other")
    court.scene.running = {"n1": {"w": "older"}}
    assert not texts(unsettled(court.scene))
    court.scene.running = {}
    assert texts(unsettled(court.scene)) == ["it waits to grow, and nothing of it runs on n1"]


@pytest.mark.parametrize(
    ("share", "ended", "caused"),
    [
        (500, None, False),
        (500, 5, True),
        (500, 30, False),
        (1000, 5, False),
    ],
)
@virtual_time()
async def test_outgrowing_a_node_takes_nothing_that_runs(
    clock: VirtualClock, share: int, ended: int | None, caused: bool
) -> None:
    """Rule 7: a share that is too small is given up for a tombstone only where the old revision
    does not run, or did not a moment ago."""
    court = Court(clock)
    scene = court.scene
    court.open_node()
    court.wish()
    scene.wishes.became("w", Wish(REVISION, DesiredState.RUNNING))
    charged = Resources.of(cpu_millicores=share, memory_mb=128)
    court.put((Key.assignment("w"), Assignment("w", "u", "n1", charged, "", START)))
    scene.running = {"n1": {"w": "older"}}
    if ended is not None:
        scene.ended_at["n1", "w"] = clock.now() - timedelta(seconds=ended)
    grave = Tombstone("n1", "w", "u", REVISION, charged, clock.now())
    step = court.bury(grave)
    assert bool(texts(wanted(scene, step))) is not caused
    scene.running = {}
    assert bool(texts(wanted(scene, step))) is (share == 1000)


@virtual_time()
async def test_what_waits_is_settled_only_without_a_place(clock: VirtualClock) -> None:
    """Rule 8: pending is right where no node has room, and wrong where one does."""
    court = Court(clock)
    court.open_node("n1", cpu=500)
    court.wish(status=WorkloadStatus.PENDING)
    assert not texts(unsettled(court.scene))
    court.open_node("n2", cpu=1000)
    assert texts(unsettled(court.scene)) == ["it waits although n2 could take it"]


@virtual_time()
async def test_being_unsettled_is_excused_for_three_intervals(clock: VirtualClock) -> None:
    """Rule 8: the clock starts anew with each timer, and then runs out."""
    court = Court(clock)
    court.open_node()
    court.wish()
    court.place(1000)
    overdue = Overdue(court.scene, timedelta(seconds=15), lambda node, workload: None)
    assert overdue.look() == (1, [])
    await clock.sleep(timedelta(seconds=15))
    assert overdue.look() == (1, [])
    await clock.sleep(timedelta(seconds=1))
    count, findings = overdue.look()
    assert (count, len(findings)) == (1, 1)


@virtual_time()
async def test_drifts_and_orphans_go_together(clock: VirtualClock) -> None:
    """Rule 8: no orphan without its drift, and no drift without its orphan."""
    court = Court(clock)
    court.open_node()
    court.place(500)
    court.put((Key.tombstone("n1", "v"), Tombstone("n1", "v", "u", "r", Resources(), START)))
    there = tuple(("n1", each, START) for each in "wvx")
    assert len(texts(orphans_left(court.scene, there))) == 1
    drift = DriftRecord("n1", "x", DriftType.ORPHAN_ON_AGENT, START)
    court.put((Key.drift("n1", "x", DriftType.ORPHAN_ON_AGENT), drift))
    assert not texts(orphans_left(court.scene, there))
    assert len(texts(orphans_left(court.scene, there[:2]))) == 1


@virtual_time()
async def test_feasibility_reads_the_records_alone(clock: VirtualClock) -> None:
    """Cordons, tombstones, labels and room each keep a workload away."""
    court = Court(clock)
    court.open_node("n1")
    court.open_node("n2")
    court.wish(status=WorkloadStatus.PENDING)
    mirror = court.scene.mirror
    workload, status = mirror.workload("w"), mirror.status("w")
    assert workload is not None
    assert status is not None
    assert list(Feasibility(mirror).nodes_for(workload, status)) == ["n1", "n2"]
    court.put((Key.tombstone("n1", "w"), Tombstone("n1", "w", "u", "r", Resources(), START)))
    assert list(Feasibility(mirror).nodes_for(workload, status)) == ["n2"]
    court.place(3500, workload="other", node="n2")
    assert not list(Feasibility(mirror).nodes_for(workload, status))
    court.place(500, workload="w", node="n2")
    placed = mirror.assignment("w")
    assert placed is not None
    assert not Feasibility(mirror).can_grow(workload, placed)


@virtual_time()
async def test_history_has_a_fingerprint_and_a_tail(clock: VirtualClock) -> None:
    """Equal lines, equal fingerprints; the tail has the lines about the asked ids in order."""
    told: list[str] = []
    one, two = History(clock, traced=["w"], sink=told.append), History(clock)
    for history in (one, two):
        history.add("call", ("w", "n"), "first")
        history.add("call", ("x", "n"), "second")
    assert one.fingerprint() == two.fingerprint()
    assert told == ["0:00:00.000 call     w n first"]
    assert [line.split()[-1] for line in one.tail(["n", "w"])] == ["first", "second"]
    two.add("call", ("x",), "third")
    assert one.fingerprint() != two.fingerprint()
    assert clock_text(3725.0421) == "1:02:05.042"
