"""Records in a store without a marker are ours and lost, or another scheduler's and taken over."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve

from persys_core.model.cluster import LeaderRecord, LedgerState, MarkerState
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState
from persys_core.model.workload import Allocation, Assignment, Tombstone, Workload
from persys_core.modes.origin import is_empty, is_of_ours, state_of
from persys_core.ports.cluster_store import Key, Record, Snapshot, Versioned
from tests.builders import container, make_node

AT = datetime(2026, 1, 1, tzinfo=UTC)
WORKLOAD = Workload("w1", "", container(), "r1", DesiredState.RUNNING, AT, AT)


def snapshot(*records: tuple[Key, Record], quarantined: tuple[str, ...] = ()) -> Snapshot:
    return Snapshot(1, {key: Versioned(record, 1, 1) for key, record in records}, quarantined)


@pytest.mark.parametrize(
    "entry",
    [
        (Key.allocation("n1"), Allocation("n1")),
        (Key.ledger(), LedgerState(ready=False, built_at=AT)),
        (Key.tombstone("n1", "w1"), Tombstone("n1", "w1", "", "r1", Resources(), AT)),
        (Key.workload("w1"), evolve(WORKLOAD, uid="u1")),
        (Key.node("n1"), evolve(make_node(), listed_under=1)),
    ],
)
def test_our_records_bear_a_mark(entry: tuple[Key, Record]) -> None:
    """One record of ours is enough: its marker was lost, and that is recovery."""
    assert is_of_ours(snapshot((Key.workload("w2"), evolve(WORKLOAD, id="w2")), entry))


def test_records_of_another_scheduler_bear_none() -> None:
    """Its nodes, workloads and assignments, and whoever leads, are not taken for ours."""
    assignment = Assignment("w1", "", "n1", Resources(), "", AT)
    found = snapshot(
        (Key.node("n1"), make_node()),
        (Key.workload("w1"), WORKLOAD),
        (Key.assignment("w1"), assignment),
        (Key.leader("scheduler"), LeaderRecord("scheduler", "r1")),
    )
    assert not is_of_ours(found)
    assert not is_empty(found)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (snapshot(), MarkerState.FRESH),
        (snapshot((Key.node("n1"), make_node())), MarkerState.FRESH),
        (snapshot((Key.workload("w1"), WORKLOAD)), MarkerState.ACTIVE),
        (snapshot(quarantined=("/workloads-spec/w1",)), MarkerState.ACTIVE),
    ],
)
def test_without_known_work_a_cluster_is_fresh(found: Snapshot, state: MarkerState) -> None:
    """Then agents that run work say that records were lost; what cannot be read counts as work."""
    assert state_of(found) is state


def test_only_an_election_is_an_empty_store() -> None:
    """A replica that campaigns before the marker is written leaves its record there."""
    leader = snapshot((Key.leader("scheduler"), LeaderRecord("scheduler", "r1")))
    assert is_empty(leader)
    assert not is_empty(snapshot(quarantined=("/nodes/n1",)))
