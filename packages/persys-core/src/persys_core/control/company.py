"""Company: who else is there, who leads, and whether one of them is no scheduler of ours.

Decided here: what counts as foreign (decisions §4). A leader that is not registered among the
replicas is another program that speaks the same election; while it leads, it decides, so users'
wishes are refused here instead of being decided twice. A write without a token of ours shows that
something else writes to the store.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from attrs import define, field

from persys_core.control.config import HaConfig
from persys_core.control.events import EventPublisher
from persys_core.control.standing import (
    FAILOVER_ELECTION,
    Standing,
    coverage_of,
    election_of,
    standing_of,
)
from persys_core.control.view import ClusterView
from persys_core.model.cluster import LeaderRecord
from persys_core.model.event import EventType
from persys_core.model.replica import HaMode, InstanceId
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import (
    COORDINATION,
    ClusterStore,
    Key,
    Kind,
    Record,
    Versioned,
    WatchBatch,
)
from persys_core.ports.membership import Membership
from persys_core.sharding.coverage import Coverage

__all__ = ["Company"]

TELL_AGAIN_AFTER = timedelta(minutes=1)


@define(eq=False)
class Company:
    """What one replica knows of the others."""

    _membership: Membership
    _store: ClusterStore
    _view: ClusterView
    _clock: Clock
    _events: EventPublisher
    _config: HaConfig

    leader_id: InstanceId = field(default="", init=False)
    """Who leads the election that this replica stands in; empty where nobody does."""
    foreign_leader: InstanceId = field(default="", init=False)
    """Who leads without being a replica of ours; empty where nobody does."""
    _suspect: InstanceId = field(default="", init=False)
    _coverage: Coverage = field(factory=Coverage, init=False)
    _is_outdated: bool = field(default=True, init=False)
    """Whether anything changed since that coverage depends on."""
    _told_at: datetime | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._view.listen(self._on_change)

    async def look(self) -> None:
        """One look at who leads; StoreUnavailableError.

        A leader of ours whose registration ended a moment before its lead is no stranger: only
        one that is seen twice in a row counts.
        """
        leader = await self._membership.leader(election_of(self._config))
        if leader != self.leader_id:
            self.leader_id, self._is_outdated = leader, True
        stranger = await self._stranger()
        self.foreign_leader = stranger if stranger == self._suspect else ""
        self._suspect = stranger
        self._covered()

    def leads(self) -> None:
        """This replica was elected; in failover mode nobody else can lead then."""
        self.leader_id = self._membership.instance_id
        self._is_outdated = True
        if self._config.mode is HaMode.FAILOVER:
            self.foreign_leader = self._suspect = ""

    def wrote(self, batch: WatchBatch) -> bool:
        """Whether somebody else wrote this, which is told, though not again and again.

        What only removes carries no token, whoever did it.
        """
        written = [
            change.key
            for change in batch.changes
            if change.current is not None and change.key.kind not in COORDINATION
        ]
        if batch.token or not written:
            return False
        now = self._clock.now()
        if self._told_at is None or now - self._told_at >= TELL_AGAIN_AFTER:
            self._told_at = now
            self._events.publish(
                EventType.FOREIGN_WRITER,
                reason=f"{written[0]} was written by a program that is no replica of this cluster",
                details={"key": str(written[0]), "revision": str(batch.revision)},
            )
        return True

    def standing(self, *, acts: bool) -> Standing:
        """What this replica is among the others; ``acts``: whether its loops run."""
        return standing_of(
            self._view,
            self._config,
            self._membership.instance_id,
            acts=acts,
            leader_id=self.leader_id,
            coverage=self._coverage,
            foreign_leader=self.foreign_leader,
        )

    def _covered(self) -> None:
        if self._is_outdated:
            self._is_outdated = False
            self._coverage = coverage_of(self._view, self._config, tuple(self._leaders()))

    def _on_change(
        self, key: Key, before: Versioned[Record] | None, after: Versioned[Record] | None
    ) -> None:
        came_or_went = before is None or after is None
        if key.kind in COORDINATION or (key.kind is Kind.NODE and came_or_went):
            self._is_outdated = True

    async def _stranger(self) -> InstanceId:
        leaders = {self.leader_id, await self._membership.leader(FAILOVER_ELECTION)} - {""}
        for leader in sorted(leaders):
            key = Key.replica(leader)
            if self._view.get(key) is None and (await self._store.get((key,)))[key] is None:
                return leader
        return ""

    def _leaders(self) -> Iterator[InstanceId]:
        """Per shard who leads it."""
        if self._config.mode is not HaMode.ACTIVE_ACTIVE:
            yield self.leader_id
            return
        first: dict[str, tuple[int, InstanceId]] = {}
        for stored in self._view.all(Kind.LEADER).values():
            if isinstance(stored.value, LeaderRecord):
                candidate = (stored.create_revision, stored.value.instance_id)
                known = first.setdefault(stored.value.election, candidate)
                first[stored.value.election] = min(known, candidate)
        for index in range(self._config.shard_count):
            yield first.get(f"shard-{index}", (0, ""))[1]
