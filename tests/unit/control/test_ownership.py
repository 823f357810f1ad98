"""Elastic ownership over the store's lives: epochs grow, whatever the revisions do."""

from attrs import evolve

from persys_core.control.ownership import ElasticShare
from persys_core.control.view import ClusterView
from persys_core.model.cluster import ClusterMarker
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement, ShardMap
from persys_core.ports.cluster_store import Change, Expectation, Key, Record, Snapshot, Versioned
from persys_core.ports.membership import Leadership
from tests.builders import START

OLD, NEW = ClusterMarker("c", START), ClusterMarker("c", START, epoch_base=1_000_000)


def _records(
    marker: ClusterMarker, revision: int, version: int = 3
) -> dict[Key, Versioned[Record]]:
    """A cluster that one replica shares with nobody, its map written at ``revision``."""
    found: dict[Key, Record] = {
        Key.marker(): marker,
        Key.replica("a"): ReplicaRecord("a", START),
        Key.shard_map(): ShardMap(version, ("a",)),
        Key.shard_ack("a"): ShardAcknowledgement("a", version),
    }
    return {key: Versioned(value, revision, revision) for key, value in found.items()}


def _share(view: ClusterView, epoch: int) -> ElasticShare:
    fence = Expectation(Key.replica("a"), create_revision=epoch)
    return ElasticShare(view, Leadership("", "a", epoch, fence))


def test_an_epoch_of_a_former_store_is_not_counted_on_the_base_of_the_next() -> None:
    """A node that was taken up by the records of a store that was replaced keeps its epoch: with
    the new base it would be higher than that of whoever comes next, whom agents would refuse."""
    view = ClusterView()
    view.load(Snapshot(5_000, _records(OLD, 5_000)))
    share = _share(view, epoch=7)
    assert share.owns("n1")
    assert share.epoch("n1", OLD.epoch_base) == 5_000
    view.load(Snapshot(20, _records(NEW, 20)))
    assert share.owns("n1")
    kept = share.epoch("n1", NEW.epoch_base)
    later = _share(view, epoch=21)
    assert later.owns("n1")
    assert 5_000 <= kept < later.epoch("n1", NEW.epoch_base) == NEW.epoch_base + 21


def test_what_is_let_go_keeps_its_epoch_for_calls_that_were_announced() -> None:
    """And a node that comes back has a higher one."""
    view = ClusterView()
    view.load(Snapshot(10, _records(OLD, 10)))
    share = _share(view, epoch=7)
    assert share.owns("n1")
    gone = Versioned(ShardMap(4, ("b",)), 11, 10)
    view.apply(11, [Change(Key.shard_map(), gone)])
    assert share.let_go() == {"n1"}
    assert (share.owns("n1"), share.epoch("n1", 0)) == (False, 10)
    back = Versioned(evolve(gone.value, version=5, members=("a",)), 12, 10)
    word = Versioned(ShardAcknowledgement("a", 5), 13, 10)
    view.apply(13, [Change(Key.shard_map(), back), Change(Key.shard_ack("a"), word)])
    assert share.owns("n1")
    assert share.epoch("n1", 0) == 12
