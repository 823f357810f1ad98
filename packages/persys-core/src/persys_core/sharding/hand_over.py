"""When a member of elastic mode may act for a node: nobody else may, at that moment.

The map says whose a node is. A member that loses nodes with a version of the map stops acting for
them and then acknowledges the version; the new owner begins after that, or when the record of the
old one is gone (decisions §4, elastic shards). So a node has one owner at most, whatever is late:

* A member acts by a version only when it has acknowledged it, so nobody needs to wait for one that
  has acknowledged nothing.
* A member that acknowledged version 3 may not have heard of 4 and 5 yet, or be about to end what it
  does by 4: it may act for whatever was its own in any of them. ``ShardMap.earlier`` keeps them.
* What is known here may be late. Acknowledgements only grow, and a member's record is only missed
  once its lease has ended, so who knows less waits longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field

from persys_core.model.ids import NodeId
from persys_core.model.replica import InstanceId, ShardMap, ShardMembers
from persys_core.sharding.hashing import OwnerTable

__all__ = ["Seats"]


@define(eq=False)
class Seats:
    """What the replicas agreed on at one moment.

    ``acknowledged``: by each replica that is there the version that it acknowledged, if it did.
    """

    map: ShardMap | None
    acknowledged: Mapping[InstanceId, int]
    _tables: dict[tuple[InstanceId, ...], OwnerTable] = field(factory=dict)
    """Shared from moment to moment, since the members change more rarely than the rest."""

    def owner(self, node_id: NodeId) -> InstanceId:
        """Whose the node is by the map; empty where there is none."""
        return self._table(self.map.members).owner(node_id) if self.map else ""

    def may_act(self, node_id: NodeId, member: InstanceId) -> bool:
        """Whether ``member`` may act for the node, given what is known here."""
        if self.map is None or self.acknowledged.get(member) != self.map.version:
            return False
        return self.owner(node_id) == member and not any(self.waits_for(node_id, member))

    def waits_for(self, node_id: NodeId, member: InstanceId) -> Iterator[InstanceId]:
        """Which others may still act for the node, by an earlier version."""
        if self.map is None:
            return
        for other, version in self.acknowledged.items():
            late = other != member and version < self.map.version
            if late and self._may_have(node_id, other, version):
                yield other

    def acting(self, node_id: NodeId) -> tuple[InstanceId, ...]:
        """Everybody who may be acting for the node now; two of them would be a fault."""
        if self.map is None:
            return ()
        return tuple(
            sorted(
                member
                for member, version in self.acknowledged.items()
                if (
                    self.may_act(node_id, member)
                    if version == self.map.version
                    else self._may_have(node_id, member, version)
                )
            )
        )

    def _may_have(self, node_id: NodeId, member: InstanceId, version: int) -> bool:
        """Whether it was the member's in any version from the one that it acknowledged on."""
        past = self.map.earlier if self.map else ()
        if not past or version < past[0].version:
            return True
        return any(
            self._table(each.members).owner(node_id) == member for each in _since(past, version)
        )

    def _table(self, members: tuple[InstanceId, ...]) -> OwnerTable:
        return self._tables.setdefault(members, OwnerTable(members))


def _since(past: tuple[ShardMembers, ...], version: int) -> Iterator[ShardMembers]:
    return (each for each in past if each.version >= version)
