"""Which nodes nobody acts for, and which two do."""

from persys_core.model.replica import ShardMap, ShardMembers
from persys_core.sharding.coverage import coverage_of_members, coverage_of_shards
from persys_core.sharding.hand_over import Seats
from persys_core.sharding.hashing import owner_of, shard_of

NODES = [f"n{number}" for number in range(30)]


def test_a_shard_that_nobody_leads_is_unowned() -> None:
    """Its nodes are named; the others are counted to their leaders."""
    found = coverage_of_shards(NODES, 3, {0: "a", 1: "b"})
    lost = sorted(node for node in NODES if shard_of(node, 3) == 2)
    assert found.unowned == tuple(lost)
    assert found.owned["a"] + found.owned["b"] == len(NODES) - len(lost)
    assert found.doubly_owned == ()


def test_without_shard_0_nobody_places_what_waits() -> None:
    """The empty id among the unowned says so."""
    assert "" in coverage_of_shards(NODES, 2, {1: "b"}).unowned
    assert "" not in coverage_of_shards(NODES, 2, {0: "a"}).unowned


def test_between_two_owners_a_node_is_still_the_old_ones() -> None:
    """Until it acknowledges, and nobody's in between."""
    past = (ShardMembers(1, ("a",)),)
    gained = [node for node in NODES if owner_of(node, "ab") == "b"]
    before = coverage_of_members(NODES, Seats(ShardMap(2, ("a", "b"), past), {"a": 1, "b": 2}))
    assert (before.unowned, before.doubly_owned) == ((), ())
    assert before.owned == {"a": len(NODES)}
    after = coverage_of_members(NODES, Seats(ShardMap(2, ("a", "b"), past), {"a": 2, "b": 2}))
    assert after.owned == {"a": len(NODES) - len(gained), "b": len(gained)}


def test_a_joining_member_leaves_its_share_unowned_until_it_acknowledges() -> None:
    """The old owner let go; the new one has not begun."""
    past = (ShardMembers(1, ("a",)),)
    found = coverage_of_members(NODES, Seats(ShardMap(2, ("a", "b"), past), {"a": 2}))
    waiting = {node for node in ["", *NODES] if owner_of(node, "ab") == "b"}
    assert set(found.unowned) == waiting
