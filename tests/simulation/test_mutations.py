"""Each rule of the simulator is seen to fail when what it guards is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control import case, placing, scheduler
from persys_core.control.volume_audit import VolumeAudit
from persys_core.memory.agents import MemoryAgents
from persys_core.model.drift import OrphanPolicy
from persys_core.model.ids import WorkloadId
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState
from persys_core.model.workload import (
    Assignment,
    Intent,
    IntentAction,
    RetryState,
    Tombstone,
)
from persys_core.ports.agents import Accepted, ApplyOutcome, ApplyRequest
from persys_core.ports.cluster_store import Delete, Key, Kind, Put
from persys_core.ports.observer import Metric
from persys_core.sim.invariants import Rule
from persys_core.sim.runner import run_scenario
from persys_core.sim.scenario import FaultKind, Scenario
from persys_core.sim.stage import Stage
from persys_core.volumes import claims
from tests.builders import container
from tests.simulation.spoilers import (
    CALM,
    RewritingStore,
    calm_run,
    careless,
    rogue,
    running_workload,
    violated,
    without_drifts,
    without_intents,
    write,
)

MIDWAY = timedelta(minutes=2)


def violated_by(act: Callable[[Stage], None]) -> Rule:
    """The rule that a rogue violates in the middle of a calm run."""
    return violated(lambda: calm_run(rogue(MIDWAY, act)))


def test_the_unspoiled_run_violates_nothing() -> None:
    """What the spoilers are put into is a run that passes."""
    calm_run()


def test_a_store_that_compares_nothing_is_noticed() -> None:
    """Rules 1 and 5: without comparisons two replicas lose each other's ledger updates."""
    busy = Scenario(
        5,
        nodes=3,
        workloads=60,
        duration=timedelta(minutes=10),
        deeds_per_minute=60,
        faults_per_minute=3,
        kinds=frozenset({FaultKind.STORE_SLOW, FaultKind.WATCH_LAG}),
    )
    broken = violated(
        lambda: run_scenario(busy, spoil_store=lambda store: RewritingStore(store, careless))
    )
    assert broken in (Rule.CAPACITY, Rule.LEDGER)


def test_a_charge_beyond_capacity_is_noticed() -> None:
    """Rule 1: it does not help that assignment and ledger agree."""

    def overcharge(stage: Stage) -> None:
        mirror = stage.watcher.mirror
        placed = next(mirror.values(Kind.ASSIGNMENT, Assignment))
        node = mirror.node(placed.node_id)
        assert node is not None
        larger = evolve(placed, charged=placed.charged + node.capacity, released=False)
        ledger = mirror.allocation(node.id)
        shares = ledger.workload_count + placed.released
        grown = evolve(ledger, charged=ledger.charged + node.capacity, workload_count=shares)
        write(
            stage,
            Put(Key.assignment(placed.workload_id), larger),
            Put(Key.allocation(node.id), grown),
        )

    assert violated_by(overcharge) is Rule.CAPACITY


def test_work_that_is_taken_from_a_node_without_a_tombstone_is_noticed() -> None:
    """Rule 2: the node still runs what was given to nobody, or to another one."""

    def forget(stage: Stage) -> None:
        mirror = stage.watcher.mirror
        running = running_workload(stage)
        placed = mirror.assignment(running.id)
        assert placed is not None
        ledger = mirror.allocation(placed.node_id).release(placed.charged)
        write(
            stage, Delete(Key.assignment(running.id)), Put(Key.allocation(placed.node_id), ledger)
        )

    assert violated_by(forget) is Rule.ONE_COPY


def test_a_call_without_an_intent_is_noticed() -> None:
    """Rule 3: a scheduler that sends and only then writes is found out at its first call."""
    assert (
        violated(
            lambda: run_scenario(
                CALM, spoil_store=lambda store: RewritingStore(store, without_intents)
            )
        )
        is Rule.INTENT
    )


def test_an_intent_of_another_epoch_is_noticed() -> None:
    """Rule 3: an intent counts only under whoever leads at its commit."""
    assert violated_by(lambda stage: announce(stage, IntentAction.APPLY_RUNNING, epoch=1)) is (
        Rule.INTENT
    )


def test_an_early_retry_is_noticed() -> None:
    """Rule 4: nothing is announced before its time."""

    def hurry(stage: Stage) -> None:
        waiting = running_workload(stage)
        due = stage.clock.now() + timedelta(seconds=30)
        write(stage, Put(Key.status(waiting.id), evolve(waiting, retry=RetryState(1, due))))
        announce(stage, IntentAction.APPLY_RUNNING)

    assert violated_by(hurry) is Rule.PATIENCE


def test_an_attempt_beyond_the_budget_is_noticed() -> None:
    """Rule 4: the budget is never exceeded."""

    def overspend(stage: Stage) -> None:
        status = running_workload(stage)
        write(stage, Put(Key.status(status.id), evolve(status, retry=RetryState(attempts=6))))

    assert violated_by(overspend) is Rule.PATIENCE


def test_a_ledger_that_drifts_is_noticed() -> None:
    """Rule 5: the allocation record is compared with its parts at every commit."""

    def drift(stage: Stage) -> None:
        ledger = stage.watcher.mirror.allocation("n0")
        write(
            stage,
            Put(Key.allocation("n0"), evolve(ledger, workload_count=ledger.workload_count + 1)),
        )

    assert violated_by(drift) is Rule.LEDGER


def test_a_record_that_vanishes_is_noticed() -> None:
    """Rule 6: a workload that nobody deleted stays."""

    def lose(stage: Stage) -> None:
        write(stage, Delete(Key.workload(running_workload(stage).id)))

    assert violated_by(lose) is Rule.NOTHING_LOST


def test_an_operators_word_that_is_undone_is_noticed() -> None:
    """Rule 6: nobody but an operator changes an operator's intent."""

    def turn(stage: Stage) -> None:
        node = stage.watcher.mirror.node("n1")
        assert node is not None
        intent = evolve(node.intent, cordoned=not node.intent.cordoned)
        write(stage, Put(Key.node("n1"), evolve(node, intent=intent)))

    assert violated_by(turn) is Rule.NOTHING_LOST


def test_a_node_that_vanishes_is_noticed() -> None:
    """Rule 6: a registered node keeps its record."""
    assert violated_by(lambda stage: write(stage, Delete(Key.node("n1")))) is Rule.NOTHING_LOST


@pytest.mark.parametrize("action", [IntentAction.DELETE, IntentAction.APPLY_STOPPED])
def test_a_stop_that_nobody_wanted_is_noticed(action: IntentAction) -> None:
    """Rule 7: neither a delete nor a stop goes to what is to run."""
    assert violated_by(lambda stage: announce(stage, action)) is Rule.NO_STRAY_STOP


def test_a_tombstone_that_nobody_caused_is_noticed() -> None:
    """Rule 7: work leaves a node for a reason."""

    def bury(stage: Stage) -> None:
        status = running_workload(stage)
        placed = stage.watcher.mirror.assignment(status.id)
        assert placed is not None
        grave = Tombstone(
            placed.node_id, status.id, placed.uid, "", placed.charged, stage.clock.now(), "mood"
        )
        write(
            stage,
            Delete(Key.assignment(status.id)),
            Put(Key.tombstone(placed.node_id, status.id), grave),
        )

    assert violated_by(bury) is Rule.NO_STRAY_STOP


def test_a_write_to_a_store_that_lost_its_data_is_noticed() -> None:
    """Rule 7: an empty store is nobody's to write to."""

    def begin_anew(stage: Stage) -> None:
        stage.watcher.data_is_whole = False
        write(stage, Put(Key.node("n1"), next(stage.watcher.mirror.values(Kind.NODE, Node))))

    assert violated_by(begin_anew) is Rule.NO_STRAY_STOP


def by_hand(workload_id: WorkloadId) -> Callable[[Stage], None]:
    """Somebody starts something on n0 that no user ever named."""

    def start(stage: Stage) -> None:
        request = ApplyRequest(workload_id, "byhand", DesiredState.RUNNING, container("web"), 0)
        stage.cluster.machines.model("n0").apply(request, stage.clock.now())

    return start


def owe_its_delete(stage: Stage) -> None:
    """Write a tombstone for what somebody started on n0, as the policy ``delete`` would."""
    grave = Tombstone("n0", "x", "", "byhand", Resources(), stage.clock.now(), "drift", shares=0)
    write(stage, Put(Key.tombstone("n0", "x"), grave))


@pytest.mark.parametrize(("policy", "after"), [(OrphanPolicy.DELETE, 1), (OrphanPolicy.REPORT, 90)])
def test_an_orphan_that_is_deleted_too_early_or_past_the_policy_is_noticed(
    policy: OrphanPolicy, after: int
) -> None:
    """Rule 7: only the policy ``delete`` takes orphans away, after three listings in a row."""

    def spoil(stage: Stage) -> None:
        rogue(timedelta(seconds=30), by_hand("x"))(stage)
        rogue(timedelta(seconds=30 + after), owe_its_delete)(stage)

    under = evolve(CALM, orphan_policy=policy)
    assert violated(lambda: calm_run(spoil, under)) is Rule.NO_STRAY_STOP


@pytest.mark.parametrize("policy", list(OrphanPolicy))
def test_an_orphan_that_nobody_hears_of_is_noticed(policy: OrphanPolicy) -> None:
    """Rule 8: what a machine has beyond the records is told of, whatever becomes of it."""
    under = evolve(CALM, orphan_policy=policy)
    calm_run(rogue(MIDWAY, by_hand("x")), under)
    deaf = violated(
        lambda: run_scenario(
            under,
            spoil=rogue(MIDWAY, by_hand("x")),
            spoil_store=lambda store: RewritingStore(store, without_drifts),
        )
    )
    assert deaf is Rule.LIVENESS


def test_work_that_never_starts_is_noticed() -> None:
    """Rule 8: an apply that is swallowed must show once the run is calm."""

    def swallow(stage: Stage) -> None:
        wrapped = stage.cluster.wrap_agents
        stage.cluster.wrap_agents = lambda _: wrapped(Swallowing(stage.cluster.machines))

    assert violated(lambda: calm_run(swallow)) is Rule.LIVENESS


def test_a_write_in_a_steady_cluster_is_noticed() -> None:
    """Rule 9: somebody who writes a little every few seconds is found out."""

    def fidget(stage: Stage) -> None:
        for seconds in range(60, 7200, 20):
            rogue(timedelta(seconds=seconds), rename)(stage)

    def rename(stage: Stage) -> None:
        node = stage.watcher.mirror.node("n0")
        assert node is not None
        version = f"at {stage.clock.monotonic()}"
        write(stage, Put(Key.node("n0"), evolve(node, agent_version=version)))

    assert violated(lambda: calm_run(fidget)) is Rule.STEADY


def test_a_counted_bug_is_noticed() -> None:
    """Rule 10: a bug that was caught and logged fails the run all the same."""

    def count(stage: Stage) -> None:
        stage.cluster.replicas[0].observer.increment(Metric.BUGS, {"where": "test"})

    assert violated_by(count) is Rule.NO_BUGS


def announce(stage: Stage, action: IntentAction, *, epoch: int = 0) -> None:
    """Write an intent for a workload that runs, as a leader would."""
    status = running_workload(stage)
    workload = stage.watcher.mirror.workload(status.id)
    placed = stage.watcher.mirror.assignment(status.id)
    leader = stage.watcher.mirror.get(Key.leader("scheduler"))
    assert workload is not None
    assert placed is not None
    assert leader is not None
    now = stage.clock.now()
    intent = Intent(
        action,
        placed.node_id,
        workload.revision_id,
        epoch or leader.create_revision,
        now,
        now + timedelta(seconds=10),
    )
    write(stage, Put(Key.status(status.id), evolve(status, intent=intent)))


class Swallowing(MemoryAgents):
    """Takes the applies of some workloads and does nothing."""

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        if request.workload_id.endswith(("3", "7")):
            return Accepted()
        return await super().apply(node, request, timeout)


def test_two_writers_of_one_volume_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2: a scheduler that asks nobody who holds a volume gives it to two nodes."""
    monkeypatch.setattr(placing, "hindrance", lambda *_: None)
    monkeypatch.setattr(case, "claims_elsewhere", lambda *_: iter(()))
    crowded = Scenario(
        1, nodes=6, workloads=150, duration=timedelta(minutes=6), deeds_per_minute=60,
        faults_per_minute=0,
    )  # fmt: skip
    assert violated(lambda: run_scenario(crowded)) is Rule.ONE_COPY


def test_records_of_volumes_out_of_step_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 5: volumes follow in every commit, and what one leaves out shows at rest."""
    monkeypatch.setattr(scheduler, "with_volumes", lambda tx, *_: tx)
    monkeypatch.setattr(VolumeAudit, "run", _nothing)
    assert violated(lambda: run_scenario(evolve(CALM, workloads=40))) is Rule.LEDGER


async def _nothing(_: VolumeAudit) -> int:
    return 0


def test_silence_taken_for_a_fence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2 (S02): a claim that leaves a silent node by itself meets its holder again."""
    monkeypatch.setattr(claims, "_is_fenced", lambda *_: True)
    silent = Scenario(
        6, nodes=8, workloads=120, duration=timedelta(minutes=12), deeds_per_minute=60,
        faults_per_minute=2, kinds=frozenset({FaultKind.CUT, FaultKind.NODE_PAUSE}),
    )  # fmt: skip
    assert violated(lambda: run_scenario(silent)) is Rule.ONE_COPY
