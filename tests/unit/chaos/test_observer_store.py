"""Spoiled histories of etcd: each is told, a sound one is not."""

from __future__ import annotations

import pytest

from persys_core.model.replica import HaMode, ReplicaRecord, ShardMap
from persys_core.model.workload import IntentAction
from persys_core.ports.cluster_store import Key, Record
from persys_core.sim.invariants import Rule
from proofs.chaos.observer import Observer
from proofs.chaos.picture import Picture
from proofs.chaos.promises import DOUBT
from proofs.chaos.timelines import Span
from tests.unit.chaos.support import START, History


def test_a_sound_history_breaks_nothing() -> None:
    """Applied, placed, started, changed, deleted, one leader after the other."""
    history = History.begun("n1", "n2")
    history.placed("w", "n1")
    history.runs()
    history.leads("two")
    history.asked(generation=2)
    history.puts(history.wish("w", 2))
    history.asked(generation=0)
    history.puts(history.wish("w", 0))
    history.announced(action=IntentAction.DELETE)
    history.puts(
        {
            Key.workload("w"): None,
            Key.assignment("w"): None,
            Key.status("w"): None,
            Key.allocation("n1"): None,
        }
    )

    assert history.broken() == []


def test_an_oversubscribed_node_is_told() -> None:
    """Also where the ledger says nothing of it, since assignments are added up."""
    history = History.begun("n1", cpu=1500)
    history.placed("a", "n1")
    assert history.broken() == []

    history.placed("b", "n1", count=2)

    assert history.broken() == [Rule.CAPACITY]
    assert "cpu of n1 rose from 1000 to 2000 of 1500" in history.texts()
    assert f"at revision {history.revision}, seed 7" in history.texts()
    assert "Allocation" in history.texts()


@pytest.mark.parametrize("count", [0, 2])
def test_a_ledger_that_is_no_sum_is_told(count: int) -> None:
    """The allocation record counts a share too few or too many."""
    history = History.begun("n1")

    history.placed("a", "n1", count=count)

    assert history.broken() == [Rule.LEDGER]


def test_the_share_of_a_tombstone_counts() -> None:
    """Where it stands in place of the assignment, and where it was forgotten."""
    history = History.begun("n1", "n2")
    history.placed("w", "n1")
    history.observer.timelines.away["n1"].append(Span(history.now))
    history.seconds += 25
    moved: dict[Key, Record | None] = {
        Key.assignment("w"): history.assignment("w", "n2"),
        Key.tombstone("n1", "w"): history.grave(),
        Key.allocation("n2"): history.ledger("n2", 1),
    }
    history.puts(moved)
    assert history.broken() == []

    history.puts({Key.tombstone("n1", "w"): None})

    assert history.broken() == [Rule.LEDGER]


def test_a_workload_that_leaves_a_node_without_a_tombstone_is_told() -> None:
    """Two assignments of one workload cannot stand in etcd; this is how two copies come about."""
    history = History.begun("n1", "n2")
    history.placed("w", "n1")

    history.puts(
        {
            Key.assignment("w"): history.assignment("w", "n2"),
            Key.allocation("n1"): history.ledger("n1", 0),
            Key.allocation("n2"): history.ledger("n2", 1),
        }
    )

    assert history.broken() == [Rule.ONE_COPY]


def test_an_intent_of_an_older_epoch_is_told() -> None:
    """The old leader's write landed after the new one's key was the oldest."""
    history = History.begun("n1")
    history.placed("w", "n1")
    old = history.epoch
    history.leads("two")

    history.announced(epoch=old)

    assert history.broken() == [Rule.INTENT]
    assert f"under epoch {old} while {history.epoch} leads" in history.texts()


def test_an_intent_without_a_leader_is_told() -> None:
    """Nobody has the election's key at that revision."""
    history = History()

    history.announced(epoch=1)

    assert history.broken() == [Rule.INTENT]
    assert "while nobody leads" in history.texts()


def test_a_candidate_behind_the_leader_does_not_lead() -> None:
    """Of two keys of one election the older one leads."""
    history = History.begun("n1")
    leader = history.epoch
    history.raw([("/persys/scheduler/leader/def", b"two")])

    history.announced(epoch=leader)
    assert history.broken() == []
    history.announced(epoch=history.revision - 1)

    assert history.broken() == [Rule.INTENT]


def test_a_shards_leader_and_a_registered_replica_may_announce() -> None:
    """Active-active: one election per shard; elastic: the epoch is that of the registration."""
    shard = History(Observer(Picture(HaMode.ACTIVE_ACTIVE)))
    shard.raw([("/persys/scheduler/leader/shard-1/abc", b"one")])
    shard.announced(epoch=shard.revision)
    assert shard.broken() == []

    elastic = History(Observer(Picture(HaMode.ELASTIC)))
    elastic.puts({Key.replica("one"): ReplicaRecord("one", START)})
    epoch = elastic.revision
    elastic.announced(epoch=epoch)
    assert elastic.broken() == []
    elastic.puts({Key.replica("one"): None})
    elastic.announced(epoch=epoch, node_id="n2")
    assert elastic.broken() == [Rule.INTENT]


def test_a_former_owner_that_announces_is_told() -> None:
    """Elastic: a node is held from a version of the map on, and whoever held it before is late."""
    history = History(Observer(Picture(HaMode.ELASTIC)))
    for name in ("one", "two"):
        history.puts({Key.replica(name): ReplicaRecord(name, START)})
    history.announced(epoch=1)
    history.puts({Key.shard_map(): ShardMap(1, ("one", "two"))})
    history.announced(epoch=3 + 1)
    assert history.broken() == []

    history.announced("v", epoch=1, node_id="n2")
    assert history.broken() == []
    history.announced(epoch=2)

    assert history.broken() == [Rule.INTENT]
    assert "under epoch 2 while 4 acts for n1" in history.texts()


def test_a_workload_that_goes_unasked_is_told() -> None:
    """Its record is removed and no client ever asked for its end."""
    history = History.begun("n1")
    history.asked()
    history.puts(history.wish("w", 1))

    history.puts({Key.workload("w"): None})

    assert history.broken() == [Rule.NOTHING_LOST]
    assert "went and nobody asked" in history.texts()


@pytest.mark.parametrize("generation", [0, 2])
def test_a_workload_that_changes_unasked_is_told(generation: int) -> None:
    """Its deletion begins, or its spec changes, by nobody's wish."""
    history = History.begun("n1")
    history.asked()
    history.puts(history.wish("w", 1))

    history.puts(history.wish("w", generation))

    assert history.broken() == [Rule.NOTHING_LOST]


def test_an_update_that_is_undone_is_told() -> None:
    """Unless a request whose outcome nobody knew may have come late."""
    history = History.begun("n1")
    for generation in (1, 2):
        history.asked(generation=generation)
        history.puts(history.wish("w", generation))

    history.puts(history.wish("w", 1))

    assert history.broken() == [Rule.NOTHING_LOST]
    late = History.begun("n1")
    late.asked(generation=1, answer="unknown")
    for generation in (1, 2):
        late.asked(generation=generation)
        late.puts(late.wish("w", generation))
    late.puts(late.wish("w", 1))
    assert late.broken() == []

    late.puts(late.wish("w", 2))
    late.seconds += DOUBT.total_seconds()
    late.puts(late.wish("w", 1))
    assert late.broken() == [Rule.NOTHING_LOST]


@pytest.mark.parametrize("through", [False, True])
def test_a_deletion_that_is_undone_is_told(through: bool) -> None:
    """It is wanted again, before the deletion is through or after."""
    history = History.begun("n1")
    history.asked()
    history.puts(history.wish("w", 1))
    history.asked(generation=0)
    history.puts({Key.workload("w"): None} if through else history.wish("w", 0))

    history.puts(history.wish("w", 1))

    assert history.broken() == [Rule.NOTHING_LOST]
    assert "a deletion was undone" in history.texts()


def test_a_node_whose_record_goes_is_told() -> None:
    """No operator of these runs removes a node."""
    history = History.begun("n1")

    history.puts({Key.node("n1"): None})

    assert history.broken() == [Rule.NOTHING_LOST]


def test_a_record_that_cannot_be_read_is_told() -> None:
    """What nobody can read is as good as lost."""
    history = History.begun("n1")

    history.raw([("/assignments/w", b"no json")])

    assert history.broken() == [Rule.NOTHING_LOST]
    assert "assignment/w" in history.texts()
