"""The observer's own copy of etcd, revision by revision, with who leads and what is charged.

Decided here: what one revision changed, and under which epochs something may be announced at it.
Nothing is read but keys and values of etcd, so a fault of a replica's view does not hide itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TypeVar

from attrs import define, field, frozen

from persys_adapters.etcd.client import KeyEvent, WatchBatch
from persys_adapters.records.codec import UnreadableRecordError, decode
from persys_adapters.records.layout import key_at
from persys_core.model.cluster import ClusterMarker, LeaderRecord
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.replica import HaMode
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import Key, Kind, Record
from persys_core.sim.mirror import Charges, Step, Touched, charge_of_record

__all__ = ["Lead", "Picture"]

R = TypeVar("R", bound=Record)
NOTHING = Charges()
_FIRST = {
    HaMode.FAILOVER: "",
    HaMode.ACTIVE_ACTIVE: "shard-0",
    HaMode.ELASTIC: "coordinator",
}
"""Whose loss matters most: the election that is looked at where one is looked at."""


@frozen
class Lead:
    """Who leads an election (``""``: the one of failover mode), and since which revision."""

    election: str
    instance_id: str
    revision: int


@frozen
class _Stored:
    record: Record
    created: int


@define(eq=False)
class Picture:
    """Every record as it stands at ``revision``. Fed by ``take`` with all of etcd's history."""

    mode: HaMode = HaMode.FAILOVER
    revision: int = 0
    unreadable: list[str] = field(factory=list)
    removed: set[Key] = field(factory=set)
    """Everything that was removed at some time."""
    token: str = ""
    """The token of the commit at ``revision``; empty where its records have none."""
    _records: dict[Key, _Stored] = field(factory=dict)
    _holders: dict[Key, _Stored] = field(factory=dict)
    """The records of elections and registrations alone, which are looked at at every revision."""
    _maps: set[int] = field(factory=set)
    """The revisions at which the shard map was written."""
    _charges: dict[NodeId, Charges] = field(factory=dict)

    def take(self, batch: WatchBatch, at: datetime) -> Step:
        """Follow one revision, which was seen at ``at``."""
        self.token = ""
        changed = [self._follow(event) for event in batch.events]
        touched = tuple(change for change in changed if change is not None)
        before: dict[NodeId, Charges] = {}
        for change in touched:
            self._charge(change, before)
        self.revision = batch.revision
        charges = {node: (old, self.charges(node)) for node, old in before.items()}
        return Step(at, batch.revision, touched, charges)

    def get(self, key: Key) -> Record | None:
        """The record at ``key``."""
        stored = self._records.get(key)
        return stored.record if stored else None

    def node(self, node_id: NodeId) -> Node | None:
        """The record of a node."""
        found = self.get(Key.node(node_id))
        return found if isinstance(found, Node) else None

    def allocation(self, node_id: NodeId) -> Allocation:
        """The ledger of a node as recorded; an empty one where there is none."""
        found = self.get(Key.allocation(node_id))
        return found if isinstance(found, Allocation) else Allocation(node_id)

    def charges(self, node_id: NodeId) -> Charges:
        """What assignments and tombstones charge a node with, added up."""
        return self._charges.get(node_id, NOTHING)

    def values(self, kind: type[R]) -> Iterator[R]:
        """All records of one class."""
        for stored in tuple(self._records.values()):
            if isinstance(stored.record, kind):
                yield stored.record

    def leads(self) -> dict[str, Lead]:
        """Who leads each election: the holder of its oldest key."""
        found: dict[str, Lead] = {}
        for key, stored in self._holders.items():
            if key.kind is Kind.LEADER and isinstance(stored.record, LeaderRecord):
                lead = Lead(stored.record.election, stored.record.instance_id, stored.created)
                known = found.get(lead.election)
                if known is None or lead.revision < known.revision:
                    found[lead.election] = lead
        return found

    @property
    def leader(self) -> str:
        """The instance that leads; see ``lead``."""
        lead = self.lead
        return lead.instance_id if lead else ""

    @property
    def lead(self) -> Lead | None:
        """Failover mode's lead; that of the first shard, or the coordinator's, in other modes."""
        return self.leads().get(_FIRST[self.mode])

    def epochs(self) -> frozenset[int]:
        """The epochs that a call may be announced under: of whoever leads at this revision. In
        elastic mode of every replica that is there, and of every version that the map had, since
        a node is held from a version on."""
        marker = self.get(Key.marker())
        base = marker.epoch_base if isinstance(marker, ClusterMarker) else 0
        revisions = {lead.revision for lead in self.leads().values()}
        if self.mode is HaMode.ELASTIC:
            revisions |= self._maps
            revisions |= {
                stored.created for key, stored in self._holders.items() if key.kind is Kind.REPLICA
            }
        return frozenset(base + revision for revision in revisions)

    def _follow(self, event: KeyEvent) -> Touched | None:
        path = event.key.decode(errors="replace")
        key = key_at(path)
        if key is None:
            return None
        before = self.get(key)
        if event.is_delete:
            self._records.pop(key, None)
            self._holders.pop(key, None)
            self.removed.add(key)
            return Touched(key, before, None)
        try:
            decoded = decode(key, event.kv.value)
        except UnreadableRecordError as error:
            self.unreadable.append(str(error))
            return None
        self.token = decoded.token or self.token
        self._records[key] = stored = _Stored(decoded.record, event.kv.create_revision)
        if key.kind in (Kind.LEADER, Kind.REPLICA):
            self._holders[key] = stored
        elif key.kind is Kind.SHARD_MAP:
            self._maps.add(event.kv.mod_revision)
        return Touched(key, before, decoded.record)

    def _charge(self, change: Touched, before: dict[NodeId, Charges]) -> None:
        for record, added in ((change.before, False), (change.after, True)):
            charge = charge_of_record(record)
            if charge is not None:
                node, amount = charge
                now = self.charges(node)
                before.setdefault(node, now)
                self._charges[node] = now.plus(amount) if added else now.minus(amount)
