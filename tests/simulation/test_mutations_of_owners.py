"""The rules about owners are seen to fail when what they guard is broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.ownership import ElasticShare
from persys_core.model.ids import NodeId
from persys_core.model.replica import HaMode, InstanceId
from persys_core.sharding.hand_over import Seats
from persys_core.sim.invariants import Rule
from persys_core.sim.scenario import FaultKind
from tests.simulation.spoilers import CALM, calm_run, violated

SHARED = evolve(
    CALM,
    nodes=8,
    workloads=30,
    replicas=3,
    ha_mode=HaMode.ELASTIC,
    faults_per_minute=2,
    kinds=frozenset({FaultKind.REPLICA_RESTART}),
)


def test_replicas_that_come_and_go_violate_nothing() -> None:
    """What the mutations below are put into is a run that passes."""
    calm_run(lambda _: None, SHARED)


def test_a_member_that_waits_for_nobody_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 12: it takes over while the former owner is still at it."""

    def nobody(self: Seats, node_id: NodeId, member: InstanceId) -> Iterator[InstanceId]:
        yield from ()

    monkeypatch.setattr(Seats, "waits_for", nobody)
    monkeypatch.setattr(ElasticShare, "let_go", lambda self: frozenset())
    longer = evolve(SHARED, duration=timedelta(minutes=8), faults_per_minute=4)
    assert violated(lambda: calm_run(lambda _: None, longer)) in (Rule.ONE_OWNER, Rule.INTENT)


def test_an_epoch_that_does_not_grow_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3: agents could not tell a former owner's call from the present one's."""
    monkeypatch.setattr(ElasticShare, "epoch", lambda self, node_id, base: base + 1)
    longer = evolve(SHARED, duration=timedelta(minutes=8), faults_per_minute=4)
    assert violated(lambda: calm_run(lambda _: None, longer)) is Rule.INTENT
