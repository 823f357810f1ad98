"""Ownership: for which nodes this replica acts, in each of the three ways to share them.

Decided here: how the loops ask whether something is theirs, and what their commits and calls carry
for it. Who owns what is decided by an election (failover, static shards) or by the shard map
(``sharding.hand_over``).
"""

from __future__ import annotations

from typing import Protocol

from attrs import define, field, frozen

from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId
from persys_core.model.replica import ReplicaRecord, ShardAcknowledgement, ShardMap
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import COORDINATION, Key, Kind, Record, Versioned
from persys_core.ports.membership import Leadership
from persys_core.sharding.hand_over import Seats
from persys_core.sharding.hashing import UNASSIGNED, OwnerTable, shard_of

__all__ = ["ElasticShare", "Ownership", "StaticShard", "WholeCluster", "seats_in"]


class Ownership(Protocol):
    """For which nodes one replica acts, under one leadership.

    The id ``""`` stands for workloads without a node, and for what is done once per cluster.
    """

    def owns(self, node_id: NodeId) -> bool:
        """Whether something may be begun for the node at this moment."""
        ...

    def epoch(self, node_id: NodeId, base: int) -> int:
        """What calls to the node's agent carry: higher than whatever a former owner's did.

        ``base``: the present marker's ``epoch_base``, which counts the store's former lives.
        """
        ...

    def guard(self, tx: Transaction) -> Transaction:
        """``tx`` with what ownership rests on, beside the leadership's own fence."""
        ...


@frozen
class WholeCluster:
    """The leader of failover mode acts for all nodes."""

    leadership: Leadership

    def owns(self, node_id: NodeId) -> bool:
        return True

    def epoch(self, node_id: NodeId, base: int) -> int:
        return base + self.leadership.epoch

    def guard(self, tx: Transaction) -> Transaction:
        return tx


@frozen
class StaticShard:
    """The leader of one shard acts for the nodes that hash into it."""

    leadership: Leadership
    index: int
    count: int

    def owns(self, node_id: NodeId) -> bool:
        return shard_of(node_id, self.count) == self.index

    def epoch(self, node_id: NodeId, base: int) -> int:
        return base + self.leadership.epoch

    def guard(self, tx: Transaction) -> Transaction:
        return tx


@define(eq=False)
class ElasticShare:
    """A member of elastic mode acts for its share, as far as nobody else still does.

    Follows the records of the view. What was taken over stays until the map gives it to another;
    ``let_go`` names that, and the caller acknowledges once nothing is done for it any more.
    """

    _view: ClusterView
    _registration: Leadership

    _held: dict[NodeId, int] = field(factory=dict, init=False)
    """The nodes that this replica acts for, each with the epoch since when it does. Its base is in
    it: a revision of a store that was replaced says nothing together with the base of the next."""
    _past: dict[NodeId, int] = field(factory=dict, init=False)
    """The epochs of what was let go: calls that were announced are still made under them."""
    _seats: Seats | None = field(default=None, init=False)
    _tables: dict[tuple[str, ...], OwnerTable] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._view.listen(self._on_change)

    def close(self) -> None:
        """Follow the view no longer."""
        self._view.unlisten(self._on_change)

    @property
    def seats(self) -> Seats:
        """What the replicas agreed on, as the view has it now."""
        if self._seats is None:
            self._seats = seats_in(self._view, self._tables)
        return self._seats

    def owns(self, node_id: NodeId) -> bool:
        """Whether this replica may begin something for the node now; ``""``: see ``Ownership``."""
        if not self.seats.may_act(node_id, self._registration.instance_id):
            return False
        if node_id not in self._held:
            stored, marker = self._view.get(Key.shard_map()), self._view.marker()
            since = max(stored.revision if stored else 0, self._registration.epoch)
            self._held[node_id] = since + (marker.value.epoch_base if marker else 0)
        return True

    def epoch(self, node_id: NodeId, base: int) -> int:
        """Since when the node is held. Its former owner's is older, and an owner that came back
        after its lease had ended counts from its new registration."""
        past = self._past.get(node_id, base + self._registration.epoch)
        return self._held.get(node_id, past)

    def guard(self, tx: Transaction) -> Transaction:
        """Whoever decided by a map that is not the newest decides anew."""
        return tx.expecting(Key.shard_map(), self._view.get(Key.shard_map()))

    @property
    def unacknowledged(self) -> int:
        """The version of the map that this replica has to acknowledge; 0 where it has not."""
        seats = self.seats
        if seats.map is None:
            return 0
        done = seats.acknowledged.get(self._registration.instance_id) == seats.map.version
        return 0 if done else seats.map.version

    def let_go(self) -> frozenset[NodeId]:
        """What was held and belongs to another by now; nothing new is begun for it."""
        mine = self._registration.instance_id
        lost = frozenset(node for node in self._held if self.seats.owner(node) != mine)
        for node in lost:
            self._past[node] = self._held.pop(node)
        return lost

    def take_up(self) -> frozenset[NodeId]:
        """What may be acted for since just now."""
        held = set(self._held)
        nodes = (UNASSIGNED, *self._view.all(Kind.NODE))
        return frozenset(node for node in nodes if self.owns(node) and node not in held)

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        if key.kind in COORDINATION:
            self._seats = None


def seats_in(view: ClusterView, tables: dict[tuple[str, ...], OwnerTable] | None = None) -> Seats:
    """What the replicas agreed on, by the records of ``view``."""
    stored = view.get(Key.shard_map())
    shard_map = stored.value if stored and isinstance(stored.value, ShardMap) else None
    present = {each.instance_id for each in view.values(Kind.REPLICA, ReplicaRecord)}
    acknowledged = {
        each.instance_id: each.version
        for each in view.values(Kind.SHARD_ACK, ShardAcknowledgement)
        if each.instance_id in present
    }
    return Seats(shard_map, acknowledged, {} if tables is None else tables)
