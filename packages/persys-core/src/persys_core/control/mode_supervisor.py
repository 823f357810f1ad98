"""ModeSupervisor: keeps the operating mode by what the store shows, and guards mutations.

Decided here: when the store is looked at and how its marker is written at first. What a finding
means is decided in ``modes``. A brand-new store gets its marker here, and nowhere else.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from attrs import define, evolve, field

from persys_core.control.committer import Committer
from persys_core.control.config import SchedulerConfig
from persys_core.control.events import EventPublisher
from persys_core.control.view import ClusterView
from persys_core.model.cluster import ClusterMarker, LedgerState
from persys_core.model.errors import FrozenError
from persys_core.model.event import EventType
from persys_core.model.ids import StoreRevision
from persys_core.model.states import OperatingMode
from persys_core.modes import machine
from persys_core.modes.evidence import (
    Found,
    Known,
    Witness,
    is_new_cluster,
    judge_store,
    rewound_to,
)
from persys_core.modes.machine import Cause, ModeEvent, ModeState
from persys_core.modes.origin import is_empty, is_of_ours, state_of
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.ports.cluster_store import (
    COORDINATION,
    ClusterStore,
    Commit,
    Committed,
    Expectation,
    Key,
    Kind,
    Put,
    Record,
    Snapshot,
    StoreFullError,
    StoreUnavailableError,
    Versioned,
)

__all__ = ["ModeSupervisor"]

_log = logging.getLogger("persys.scheduler")
WITNESSES = 4
"""So many of the newest records of either sort are kept in mind, to tell a store that went back."""


@define(eq=False)
class ModeSupervisor:
    """One replica's mode.

    Size: what the mode permits is one short question for each kind of asker.
    """

    _store: ClusterStore
    _memory: ClusterMemory
    _view: ClusterView
    _committer: Committer
    _events: EventPublisher
    _clock: Clock
    _config: SchedulerConfig
    _token: Callable[[], str]

    _known: Known | None = field(default=None, init=False)
    _saved: Known | None = field(default=None, init=False)
    _accepted: int = field(default=0, init=False)
    """How often an operator accepted a store; what was found before says nothing afterwards."""
    _witnessed: tuple[StoreRevision, tuple[Witness, ...]] = field(default=(-1, ()), init=False)
    foreign_leader: str = field(default="", init=False)
    """Another scheduler that leads this cluster: nothing is decided here meanwhile."""
    state: ModeState = field(init=False)
    changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    """Set at each change of mode; who waits for it clears it."""

    @state.default
    def _started(self) -> ModeState:
        return ModeState.started(self._clock.now())

    @property
    def may_act(self) -> bool:
        """Whether the loops may place, send and move."""
        return not self.foreign_leader and machine.permits(self.state.mode, self.state.cause).act

    @property
    def known(self) -> Known | None:
        """The cluster that this replica knows; ``None`` where it never saw one."""
        return self._known

    @property
    def is_frozen(self) -> bool:
        """Whether the mode refuses users' and operators' wishes."""
        return not machine.permits(self.state.mode, self.state.cause).mutate

    @property
    def refuses(self) -> bool:
        """Whether users' wishes are refused, be it for the store's sake or another scheduler's."""
        return self.is_frozen or bool(self.foreign_leader)

    def require_writable(self) -> None:
        """Raise FrozenError, with the reason and what to do, while nothing may be changed."""
        self._require_no_other()
        if self.is_frozen:
            raise FrozenError(machine.frozen_text(self.state))

    def _require_no_other(self) -> None:
        if self.foreign_leader:
            raise FrozenError(
                f"scheduler degraded/recovery mode; control plane frozen: {self.foreign_leader}"
                " leads this cluster and is no replica of it; stop that scheduler, or give it"
                " another store; reads are served"
            )

    def require_deletable(self) -> bool:
        """Raise FrozenError while nothing may be removed; whether nothing else is permitted."""
        self._require_no_other()
        permitted = machine.permits(self.state.mode, self.state.cause)
        if not permitted.delete_only:
            raise FrozenError(machine.frozen_text(self.state))
        return not permitted.mutate

    def tells_drain(self, now: datetime) -> bool:
        """Whether agents are told to accept no new apply."""
        return machine.tells_drain(self.state, now)

    def report(self, event: ModeEvent, detail: str = "") -> None:
        """Take an event; a change of mode is published."""
        before = self.state
        self.state = machine.next_mode(before, event, self._clock.now(), detail=detail)
        if self.state.mode is not before.mode:
            self._publish(before.mode)
            self.changed.set()

    def on_failure(self, error: Exception) -> None:
        """A store operation failed for good (from the committer)."""
        if isinstance(error, FrozenError):
            self.report(ModeEvent.MARKER_MISSING, str(error))
        elif isinstance(error, StoreFullError):
            self.report(ModeEvent.SPACE_EXCEEDED, str(error))
        else:
            self.report(ModeEvent.OPERATION_EXHAUSTED, str(error))

    async def bootstrap(self) -> None:
        """Load the first snapshot; write the marker of a brand-new cluster.

        Raises StoreUnavailableError where the store does not answer; the caller tries again.
        """
        self._known = self._saved = await self._memory.load()
        snapshot = await self._store.snapshot()
        self._view.load(snapshot)
        found = self._found(_marker_of(self._view.marker()), snapshot.revision, snapshot.records)
        if is_new_cluster(self._known, found) and not is_of_ours(snapshot):
            await self._found_cluster(snapshot)
        elif found.marker is None:
            self.report(ModeEvent.MARKER_MISSING, "the store has no marker of this cluster")
            return
        else:
            # An older or another store than this replica knows is recovery, not a start.
            self._judge(found)
            await self._keep_doubt()
        await self._adopt_marker()

    async def probe(self) -> None:
        """Ask the store whether it answers and is the one that we know; a pass of the loop."""
        accepted, seen = self._accepted, self._view.revision
        try:
            async with asyncio.timeout(self._config.probe_timeout.total_seconds()):
                revision = await self._store.probe()
                known = self._known.witnesses if self._known else ()
                there = await self._store.get((Key.marker(), *(each.key for each in known)))
                marker = there[Key.marker()]
        except (StoreUnavailableError, TimeoutError) as error:
            self.report(ModeEvent.PROBE_FAILED, str(error) or "no answer in time")
            return
        if accepted != self._accepted:
            return
        self.report(ModeEvent.PROBE_OK)
        self._judge(self._found(_marker_of(marker), revision, there), seen)
        await self._keep_doubt()
        if self.state.cause is Cause.SPACE:
            await self._probe_space()
        if marker is not None and self.state.mode is OperatingMode.NORMAL:
            # A store that was put back may count anew, and is this cluster's all the same.
            self._committer.marker_revision = marker.create_revision
        await self._remember(revision, _marker_of(marker))

    async def _probe_space(self) -> None:
        """Only a write shows that there is space again (decisions §3, compaction)."""
        try:
            async with asyncio.timeout(self._config.probe_timeout.total_seconds()):
                await self._store.probe(writing=True)
        except (StoreUnavailableError, TimeoutError):
            return
        self.report(ModeEvent.PROBE_WRITTEN)

    def _found(
        self,
        marker: ClusterMarker | None,
        revision: StoreRevision,
        records: Mapping[Key, Versioned[Record] | None],
    ) -> Found:
        """``records``: those of the witnesses among them count, if they may be there by then."""
        stand = {
            each.key: stored.revision
            for each in (self._known.witnesses if self._known else ())
            if (stored := records.get(each.key)) is not None and each.revision <= revision
        }
        return Found(marker, self._store.backend_id, revision, stand)

    async def _keep_doubt(self) -> None:
        """That the store went back must be known after a restart, however far it counts then."""
        if self._known is not None and self._known.rewound_to and self._known != self._saved:
            await self._memory.save(self._known)
            self._saved = self._known

    def _judge(self, found: Found, seen: StoreRevision = 0) -> None:
        """``seen``: what the view had of the store before it was asked; that is known as well,
        unless the store is in doubt, since the view may be of it."""
        known = self._known
        if known is not None and not known.rewound_to and seen > known.revision:
            known = evolve(known, revision=seen)
        event, detail = judge_store(known, found)
        if known is not None and event is ModeEvent.REVISION_REWOUND and not known.rewound_to:
            # A view that was followed up to now has the newest of what was lost.
            newest = self._witnesses() if seen else known.witnesses
            self._known = evolve(known, rewound_to=rewound_to(known, found), witnesses=newest)
        self._take(event, detail, found, known)

    def _take(self, event: ModeEvent, detail: str, found: Found, known: Known | None) -> None:
        before = self.state
        self.report(event, detail)
        if event is ModeEvent.REVISION_REWOUND and self.state is not before and known is not None:
            self._events.publish(
                EventType.STORE_REWOUND,
                reason=detail,
                details={
                    "from": str(known.revision),
                    "to": str(found.revision),
                    "from_epoch_base": str(known.epoch_base),
                    "to_epoch_base": str(found.marker.epoch_base if found.marker else 0),
                },
            )

    async def remember(self) -> None:
        """Keep what is known up to now; a clean stop leaves no gap that a restored store fits."""
        await self._remember(self._view.revision, _marker_of(self._view.marker()))

    async def accept(self, marker: Versioned[ClusterMarker]) -> None:
        """An operator said what this store is: it is this replica's cluster from now on.

        Remembered before it is acted upon, so that a restart does not ask again.
        """
        known = self._now_known(marker.value, marker.revision)
        await self._memory.save(known)
        self._known = self._saved = known
        self._accepted += 1
        self._committer.marker_revision = marker.create_revision
        self.report(ModeEvent.ACKNOWLEDGED)

    def is_ours(self, snapshot: Snapshot) -> bool:
        """Whether ``snapshot`` shows this replica's cluster; else the mode says so.

        Its revision proves nothing: it may have been on its way for a while. So may one of the
        marker's former life, which is not taken where the view is newer than it.
        """
        if self._known is None:
            return True
        marker = _marker_of(snapshot.records.get(Key.marker()))
        if marker is not None and snapshot.revision < self._view.revision:
            marker = evolve(marker, epoch_base=self._known.epoch_base)
        found = self._found(marker, snapshot.revision, snapshot.records)
        event, detail = judge_store(
            self._known, evolve(found, revision=max(found.revision, self._known.revision))
        )
        if event is ModeEvent.DATA_WHOLE:
            return True
        self._take(event, detail, found, self._known)
        return False

    async def _remember(self, revision: int, marker: ClusterMarker | None) -> None:
        """Only a store that was found whole is remembered; what was lost must stay known."""
        if self._known is None or self.state.mode is not OperatingMode.NORMAL:
            return
        if marker is None or marker.epoch_base < self._known.epoch_base:
            return
        self._known = self._now_known(marker, revision)
        if self._known != self._saved:
            await self._memory.save(self._known)
            self._saved = self._known

    def _now_known(self, marker: ClusterMarker, revision: int) -> Known:
        return Known(
            marker.cluster_id,
            self._store.backend_id,
            revision=revision,
            nodes=tuple(sorted(self._view.all(Kind.NODE))),
            epoch_base=marker.epoch_base,
            witnesses=self._witnesses(),
        )

    def _witnesses(self) -> tuple[Witness, ...]:
        """The newest records of the view, and the newest of those that last: an older store lacks
        the former, and has the latter as they were. Replicas come and go."""
        if self._witnessed[0] != self._view.revision:
            lasting = self._newest((Kind.NODE, Kind.ALLOCATION))
            newest = self._newest(kind for kind in Kind if kind not in COORDINATION)
            self._witnessed = (self._view.revision, tuple(dict.fromkeys((*lasting, *newest))))
        return self._witnessed[1]

    def _newest(self, kinds: Iterable[Kind]) -> Iterator[Witness]:
        records = (
            (stored.revision, kind, id_)
            for kind in kinds
            for id_, stored in self._view.all(kind).items()
        )
        for revision, kind, id_ in heapq.nlargest(WITNESSES, records):
            yield Witness(Key(kind, id_), revision)

    async def _adopt_marker(self) -> None:
        marker = self._view.marker()
        if marker is None:
            return
        self._committer.marker_revision = marker.create_revision
        if self.state.mode is OperatingMode.NORMAL:
            self._known = Known(marker.value.cluster_id)
            await self._remember(self._view.revision, marker.value)

    async def _found_cluster(self, snapshot: Snapshot) -> None:
        """Write the marker and the ledger's state; another replica may be first.

        The ledger of an empty store is ready; over another scheduler's records it is to be built.
        """
        now = self._clock.now()
        cluster_id = f"{self._config.cluster_id}-{self._token()[:8]}"
        commit = Commit(
            expects=(Expectation(Key.marker(), revision=0), Expectation(Key.ledger(), revision=0)),
            writes=(
                Put(Key.marker(), ClusterMarker(cluster_id, now, state_of(snapshot))),
                Put(Key.ledger(), LedgerState(ready=is_empty(snapshot), built_at=now)),
            ),
            token=self._token(),
        )
        result = await self._store.commit(commit)
        if isinstance(result, Committed):
            snapshot = await self._store.snapshot()
            self._view.load(snapshot)
        else:
            self._view.refresh(result.revision, result.current)
        if self._view.marker() is None:
            self.report(ModeEvent.MARKER_MISSING, "the marker of this cluster cannot be read")

    def _publish(self, before: OperatingMode) -> None:
        level = logging.WARNING if self.is_frozen else logging.INFO
        _log.log(level, "mode %s, was %s: %s", self.state.mode, before, self.state.reason)
        details = {
            "from": before.value,
            "to": self.state.mode.value,
            "reason": self.state.reason,
            "changed_at": self.state.since.isoformat(),
            "writable": str(not self.is_frozen).lower(),
        }
        self._events.publish(
            EventType.SCHEDULER_MODE_CHANGED, reason=self.state.reason, details=details
        )


def _marker_of(stored: Versioned[Record] | None) -> ClusterMarker | None:
    value = stored.value if stored else None
    return value if isinstance(value, ClusterMarker) else None
