"""Whose a node is: the reference's hash for static shards, rendezvous for elastic members."""

import zlib
from collections import Counter

import pytest

from persys_core.sharding.hashing import UNASSIGNED, OwnerTable, owner_of, shard_of

NODES = [f"node-{number}" for number in range(1000)]
MEMBERS = ["a-1", "b-2", "c-3", "d-4"]


@pytest.mark.parametrize(("node_id", "crc"), [("", 0), ("123456789", 0xCBF43926), (" n1 ", None)])
def test_static_shards_are_the_references(node_id: str, crc: int | None) -> None:
    """CRC-32 (IEEE) of the trimmed id, modulo the count."""
    expected = zlib.crc32(node_id.strip().encode()) if crc is None else crc
    assert [shard_of(node_id, count) for count in range(1, 9)] == [
        expected % count for count in range(1, 9)
    ]


@pytest.mark.parametrize("count", range(1, 9))
def test_each_node_is_in_one_shard(count: int) -> None:
    """No id is left over, and none falls outside (field report L05)."""
    assert {shard_of(node, count) for node in NODES} == set(range(count))
    assert shard_of(UNASSIGNED, count) == 0


def test_members_share_about_equally() -> None:
    """No member has twice its share, or less than half."""
    shares = Counter(owner_of(node, MEMBERS) for node in NODES)
    assert set(shares) == set(MEMBERS)
    assert all(125 < share < 500 for share in shares.values())


def test_only_a_members_own_nodes_move_when_it_leaves() -> None:
    """Everybody else keeps what was theirs, whoever it is that leaves or joins."""
    for gone in MEMBERS:
        left = [member for member in MEMBERS if member != gone]
        for node in NODES:
            before, after = owner_of(node, MEMBERS), owner_of(node, left)
            assert before in (after, gone)


def test_the_order_of_members_does_not_matter() -> None:
    """Replicas may list them in any order; a table answers as the function does."""
    table = OwnerTable(tuple(MEMBERS))
    for node in [UNASSIGNED, *NODES[:50]]:
        assert owner_of(node, MEMBERS) == owner_of(node, MEMBERS[::-1]) == table.owner(node)


def test_nobody_owns_anything_where_nobody_is() -> None:
    """An empty set of members is no error."""
    assert owner_of("n1", []) == ""
