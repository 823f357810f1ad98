"""What operators do about volumes: look at them, fence a silent holder, give a volume up.

Decided here: when a fence and a release are refused, and what is published. What follows from
them for workloads is decided in ``volumes.claims``; the leader follows the records, so any
replica may take the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from persys_core.control.answers import Freshness, NodeFenced, VolumeRelease, VolumeView
from persys_core.control.committer import Committer
from persys_core.control.config import SchedulerConfig
from persys_core.control.events import EventPublisher
from persys_core.control.node_views import NodeViews
from persys_core.control.reads import Reads
from persys_core.control.requests import NodeIntentChange, ReleaseVolume, VolumeFilter
from persys_core.control.view import ClusterView
from persys_core.model.errors import NotFoundError, RefusedError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId, StoreRevision
from persys_core.model.node import Fence
from persys_core.model.volume import Volume, VolumeId, VolumePhase
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Kind
from persys_core.volumes.claims import stands
from persys_core.volumes.outcome import Outcome

__all__ = ["VolumeOperations"]


@frozen
class VolumeOperations:
    """Implements ``control.api.VolumesApi``."""

    _view: ClusterView
    _reads: Reads
    _committer: Committer
    _node_views: NodeViews
    _events: EventPublisher
    _clock: Clock
    _config: SchedulerConfig
    _require_writable: Callable[[], None]

    async def list_volumes(
        self, wanted: VolumeFilter, *, at_least: StoreRevision = 0
    ) -> tuple[Sequence[VolumeView], Freshness]:
        """Every volume that is known, sorted by id."""
        await self._reads.reach(at_least, self._config.api_timeout)
        views = (self._shown(volume) for volume in self._view.values(Kind.VOLUME, Volume))
        found = sorted((view for view in views if _matches(view, wanted)), key=_id_of)
        return found, self._reads.freshness()

    async def fence(self, change: NodeIntentChange) -> NodeFenced:
        """Record that a silent node is cut off, so that its exclusive volumes may move."""
        self._require_writable()
        await self._reads.through(Key.node(change.node_id))
        await self._committer.transact(lambda: self._fenced(change))
        held = self._held_by(change.node_id)
        self._events.publish(
            EventType.NODE_FENCED,
            node_id=change.node_id,
            reason=change.reason,
            details={"source": change.actor, "volumes": ", ".join(held)},
        )
        return NodeFenced(self._node_views.of(change.node_id), held)

    async def release(self, request: ReleaseVolume) -> VolumeRelease:
        """Give up what is recorded of a volume; its data is not touched."""
        self._require_writable()
        await self._reads.through(Key.volume(request.volume_id))
        release = await self._committer.transact(lambda: self._released(request))
        if release.accepted:
            self._events.publish(
                EventType.VOLUME_RELEASED,
                node_id=release.holder,
                reason=request.reason,
                details={
                    "source": request.actor,
                    "volume": request.volume_id,
                    "force": str(request.force).lower(),
                },
            )
        return release

    # Parts

    def _fenced(self, change: NodeIntentChange) -> tuple[Transaction, None]:
        stored = self._view.node(change.node_id)
        if stored is None:
            raise NotFoundError("node", change.node_id)
        if self._node_views.condition(change.node_id) is NodeCondition.READY:
            raise RefusedError(
                f'node "{change.node_id}" still beats, so it is not cut off: drain it to have its'
                " work leave, or power it off first and fence it once it is NotReady"
            )
        fence = Fence(self._clock.now(), change.reason, change.actor)
        fenced = evolve(stored.value, fence=stored.value.fence or fence)
        return Transaction().put(Key.node(change.node_id), fenced, stored), None

    def _held_by(self, node_id: NodeId) -> tuple[VolumeId, ...]:
        after = Outcome(self._view)
        claims = (
            (volume.id, stands(volume, after)) for volume in self._view.values(Kind.VOLUME, Volume)
        )
        return tuple(sorted(id_ for id_, claim in claims if claim and claim.node_id == node_id))

    def _released(self, request: ReleaseVolume) -> tuple[Transaction, VolumeRelease]:
        stored = self._view.volume(request.volume_id)
        if stored is None:
            raise NotFoundError("volume", request.volume_id)
        volume, after = stored.value, Outcome(self._view)
        claim, key = stands(volume, after), Key.volume(volume.id)
        holder = claim.node_id if claim else ""
        users = [ref for ref in volume.workload_refs if after.workload(ref) is not None]
        if not users and not after.holds_on(volume.id):
            tx = Transaction().delete(key, stored)
            return tx, VolumeRelease(True, True, self._shown(volume), holder)
        if not request.force or claim is None:
            tx = Transaction().expecting(key, stored)
            return tx, VolumeRelease(False, False, self._shown(volume), holder)
        if self._node_views.condition(holder) is NodeCondition.READY:
            raise RefusedError(
                f'volume "{volume.id}" is held by workload {claim.workload_id} on {holder}, which'
                " beats, so it is in use: delete or drain that workload; nothing was changed"
            )
        now = self._clock.now()
        freed = evolve(volume, claim=evolve(claim, released_at=now), updated_at=now)
        tx = Transaction().put(key, freed, stored)
        return tx, VolumeRelease(True, False, self._shown(freed), holder)

    def _shown(self, volume: Volume) -> VolumeView:
        after = Outcome(self._view)
        return VolumeView(
            volume, tuple(after.holds_on(volume.id).values()), self._why_held(volume, after)
        )

    def _why_held(self, volume: Volume, after: Outcome) -> str:
        claim = stands(volume, after)
        if claim is not None:
            since = claim.since.isoformat(timespec="seconds")
            text = f"held by workload {claim.workload_id} on {claim.node_id} since {since}"
            if claim.released_at is not None:
                return f"{text}, released by an operator"
            node = after.node(claim.node_id)
            if self._node_views.condition(claim.node_id) is NodeCondition.READY:
                return text
            fenced = node is not None and node.fence is not None
            return f"{text}, {'fenced' if fenced else 'not fenced'}"
        if volume.phase is VolumePhase.DELETING:
            return "its data is to be deleted, which an agent has yet to confirm"
        if volume.workload_refs:
            return f"referred to by {', '.join(volume.workload_refs)}"
        return ""


def _matches(view: VolumeView, wanted: VolumeFilter) -> bool:
    volume = view.volume
    nodes = {each.node_id for each in view.attachments} | {volume.node_id}
    if volume.claim is not None:
        nodes.add(volume.claim.node_id)
    workloads = {*volume.workload_refs, *(each.workload_id for each in view.attachments)}
    return (
        (not wanted.node_id or wanted.node_id in nodes)
        and (not wanted.workload_id or wanted.workload_id in workloads)
        and wanted.phase.lower() in ("", volume.phase.lower())
    )


def _id_of(view: VolumeView) -> str:
    return view.volume.id
