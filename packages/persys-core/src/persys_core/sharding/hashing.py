"""To whom a node belongs: a pure function of its id and of what the replicas agreed on.

Decided here: the stable hash of static shards, which is the reference's (CRC-32 of the trimmed id),
and the spread over members that come and go (rendezvous hashing: a member that joins or leaves
moves its own share only). What has no node has the id ``""``, and belongs to somebody as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from hashlib import blake2b

from attrs import define, field

from persys_core.model.ids import NodeId
from persys_core.model.replica import InstanceId

__all__ = ["UNASSIGNED", "OwnerTable", "owner_of", "shard_of"]

UNASSIGNED: NodeId = ""
"""In place of a node's id, for workloads without a node and for what concerns the whole cluster."""


def shard_of(node_id: NodeId, count: int) -> int:
    """The shard, from 0 to ``count - 1``; what is unassigned belongs to shard 0."""
    return zlib.crc32(node_id.strip().encode()) % count


def owner_of(node_id: NodeId, members: Sequence[InstanceId]) -> InstanceId:
    """The member that the node belongs to; empty where there is none."""
    return max(members, key=lambda member: (_weight(node_id, member), member), default="")


def _weight(node_id: NodeId, member: InstanceId) -> bytes:
    return blake2b(f"{member}\0{node_id}".encode(), digest_size=8).digest()


@define(eq=False)
class OwnerTable:
    """``owner_of`` for one set of members, each node hashed once."""

    members: tuple[InstanceId, ...]
    _known: dict[NodeId, InstanceId] = field(factory=dict, init=False)

    def owner(self, node_id: NodeId) -> InstanceId:
        """The member that the node belongs to; empty where there is none."""
        found = self._known.get(node_id)
        if found is None:
            found = self._known[node_id] = owner_of(node_id, self.members)
        return found
