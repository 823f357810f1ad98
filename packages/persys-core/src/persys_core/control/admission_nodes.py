"""Admission of nodes: registration, heartbeats, and what operators do to them.

A steady heartbeat writes nothing: it renews the node's lease, measures, and compares what the
node runs with the records (architecture §3.5). It changes only what is assigned to its sender.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

from attrs import evolve, field, frozen

from persys_core.control.announced import Announced
from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.committer import Committer
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.events import EventPublisher
from persys_core.control.listing import Listing
from persys_core.control.mode_supervisor import ModeSupervisor
from persys_core.control.node_views import NodeViews
from persys_core.control.reads import Reads
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.control.view import ClusterView
from persys_core.model.cluster import ClusterMarker
from persys_core.model.errors import FieldError, InvalidInputError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId, is_valid_id
from persys_core.model.node import Node
from persys_core.model.usage import NodeUsage
from persys_core.model.volume import VolumeId
from persys_core.modes.evidence import judge_work
from persys_core.nodes.heartbeat import BeatMemory, BeatOrder, BeatVerdict, begin_boot, judge_beat
from persys_core.nodes.operations import (
    Refusal,
    holder_refusal,
    register,
    registration_refusal,
)
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, StoreUnavailableError
from persys_core.ports.observer import Metric

__all__ = ["NodeAdmission"]

FROZEN_LEASE = timedelta(seconds=30)
FROZEN_REASON = "scheduler degraded/recovery mode"


@frozen
class NodeAdmission:
    """The use cases of agents, and of operators on nodes."""

    _view: ClusterView
    _reads: Reads
    _committer: Committer
    _listing: Listing
    _modes: ModeSupervisor
    _node_views: NodeViews
    _events: EventPublisher
    _ports: SchedulerPorts
    _config: SchedulerConfig
    _on_usage: Callable[[NodeUsage], None]
    _on_heard: Callable[[NodeId], None]
    _announced: Announced

    _beats: dict[NodeId, BeatMemory] = field(factory=dict, init=False)

    async def register(self, request: RegisterNode) -> RegisterAnswer:
        """Add or renew a node; see ``AdmissionApi.register_node``."""
        _validate(request)
        taken = self._holder_refusal(request)
        if taken is not None:
            return self._id_taken(request, taken)
        if self._modes.refuses:
            self._announced.note(request)
            await self._heard_while_frozen(request.node_id, self._config.liveness.returning_lease)
            return self._refused(FROZEN_REASON)
        before = self._view.node(request.node_id)
        try:
            await self._reads.through(Key.node(request.node_id))
            before = self._view.node(request.node_id)
            await self._end_releases(request.node_id)
            outcome = await self._committer.transact(lambda: self._decide_register(request))
        except StoreUnavailableError as error:
            return self._refused(f"{FROZEN_REASON}: {error}")
        if isinstance(outcome, Refusal):
            return self._id_taken(request, outcome)
        return await self._registered(request, before.value if before else None, was_fenced=outcome)

    async def _registered(
        self, request: RegisterNode, before: Node | None, *, was_fenced: bool
    ) -> RegisterAnswer:
        if request.boot_id:
            known = self._beats.get(request.node_id)
            self._beats[request.node_id] = begin_boot(known, request.boot_id)
        if was_fenced:
            self._fence_ended(request.node_id)
        expires = await self._ports.liveness.touch(request.node_id, self._config.liveness.lease)
        self._on_heard(request.node_id)
        if before is None:
            self._joined(request)
        else:
            self._tell_types(before, request)
        return RegisterAnswer(True, "registered", self._config.liveness.heartbeat_interval, expires)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """A node is alive; see ``AdmissionApi.heartbeat``."""
        now = self._ports.clock.now()
        if self._modes.refuses:
            if self._has_to_present_itself(beat.node_id):
                return HeartbeatAnswer(False, False, now, known=False)
            return await self._acknowledge_while_frozen(beat)
        if not await self._is_known(beat):
            return HeartbeatAnswer(False, False, now, known=False)
        await self._end_fence(beat.node_id)
        expires = await self._ports.liveness.touch(beat.node_id, self._config.liveness.lease)
        self._on_heard(beat.node_id)
        self._take(beat)
        node = self._view.node(beat.node_id)
        draining = node is not None and node.value.intent.draining
        return HeartbeatAnswer(True, draining, expires, confirmed=self._confirmed(beat.node_id))

    async def _acknowledge_while_frozen(self, beat: Heartbeat) -> HeartbeatAnswer:
        """To register again would be of no use now, so a beat of a boot that is not the node's is
        acknowledged too; it renews and confirms nothing."""
        now = self._ports.clock.now()
        confirmed = timedelta(0)
        if not self._is_of_another_boot(beat):
            await self._heard_while_frozen(beat.node_id, self._config.liveness.lease)
            confirmed = self._confirmed(beat.node_id)
        drains = self._modes.tells_drain(now)
        return HeartbeatAnswer(True, drains, now + FROZEN_LEASE, confirmed=confirmed)

    def _confirmed(self, node_id: NodeId) -> timedelta:
        """Who can tell nobody of a beat must not let the agent think that all know of it."""
        return self._ports.liveness.confirmed(node_id)

    def _has_to_present_itself(self, node_id: NodeId) -> bool:
        """In recovery only a registration tells where an agent listens, which an import needs."""
        known = self._view.node(node_id) is not None or node_id in self._announced
        return self._modes.state.is_recovery and not known

    async def _heard_while_frozen(self, node_id: NodeId, lease: timedelta) -> None:
        """A sign of life is one in every mode, so that nobody is missed after a long freeze.

        Nothing is written. A node that an operator answered for, by a fence or the release of a
        volume, stays silent until that can be ended first.
        """
        node = self._view.node(node_id)
        if node is None or node.value.fence is not None or self._view.released_from(node_id):
            return
        with suppress(StoreUnavailableError):  # of leases that are kept in the store
            await self._ports.liveness.touch(node_id, lease)

    # Registration

    def _holder_refusal(self, request: RegisterNode) -> Refusal | None:
        stored = self._view.node(request.node_id)
        memory = self._beats.get(request.node_id)
        return holder_refusal(
            stored.value if stored else None,
            request,
            alive=self._ports.liveness.is_alive(request.node_id),
            ended_boots=memory.ended_boots if memory else (),
            lease=self._config.liveness.lease,
        )

    def _decide_register(self, request: RegisterNode) -> tuple[Transaction, bool | Refusal]:
        """The write, and whether it ends a fence; or why there is none."""
        taken = self._holder_refusal(request)
        if taken is not None:
            return Transaction(), taken
        stored = self._view.node(request.node_id)
        now = self._ports.clock.now()
        node = register(stored.value if stored else None, request, now)
        was_fenced = stored is not None and stored.value.fence is not None
        return Transaction().put(Key.node(node.id), node, stored), was_fenced

    def _id_taken(self, request: RegisterNode, taken: Refusal) -> RegisterAnswer:
        """The machine that is refused may have nobody who reads its log, so all are told of it."""
        self._events.publish(
            EventType.NODE_ID_TAKEN,
            node_id=request.node_id,
            code=f"{taken.code}:{request.endpoint}",
            reason=taken.message,
            details={"refused_endpoint": request.endpoint},
        )
        return self._refused(taken.message, id_taken=True)

    def _refused(self, reason: str, *, id_taken: bool = False) -> RegisterAnswer:
        expires = self._ports.clock.now() + FROZEN_LEASE
        interval = self._config.liveness.heartbeat_interval
        return RegisterAnswer(False, reason, interval, expires, id_taken=id_taken)

    def _joined(self, request: RegisterNode) -> None:
        self._events.publish(
            EventType.NODE_JOINED,
            node_id=request.node_id,
            reason="registered",
            details={"status": "Ready", "agent_endpoint": request.endpoint},
        )

    def _tell_types(self, before: Node, request: RegisterNode) -> None:
        """That a node offers a type no more is how its agent says that a runtime is silent."""
        gone = sorted(before.workload_types - request.workload_types)
        back = sorted(request.workload_types - before.workload_types)
        parts = (("offers no more: ", gone), ("offers again: ", back))
        text = "; ".join(word + ", ".join(types) for word, types in parts if types)
        if text:
            self._events.publish(
                EventType.NODE_TYPES_CHANGED, node_id=request.node_id, reason=text, code=text
            )

    # Heartbeats

    async def _end_fence(self, node_id: NodeId) -> None:
        """Who is heard is not cut off; that is known before the beat counts as a sign of life."""
        node = self._view.node(node_id)
        if node is None:
            return
        await self._end_releases(node_id)
        if node.value.fence is None:
            return
        await self._committer.transact(lambda: self._unfenced(node_id))
        self._fence_ended(node_id)

    async def _end_releases(self, node_id: NodeId) -> None:
        """Nobody answers any more for who holds volumes there."""
        for volume_id in sorted(self._view.released_from(node_id)):
            await self._committer.transact(partial(self._held_again, node_id, volume_id))

    def _fence_ended(self, node_id: NodeId) -> None:
        self._events.publish(
            EventType.NODE_FENCE_ENDED, node_id=node_id, reason="the node is heard again"
        )

    def _held_again(self, node_id: NodeId, volume_id: VolumeId) -> tuple[Transaction, None]:
        stored = self._view.volume(volume_id)
        claim = stored.value.claim if stored else None
        if stored is None or claim is None or claim.node_id != node_id:
            return Transaction(), None
        held = evolve(stored.value, claim=evolve(claim, released_at=None))
        return Transaction().put(Key.volume(volume_id), held, stored), None

    def _unfenced(self, node_id: NodeId) -> tuple[Transaction, None]:
        stored = self._view.node(node_id)
        if stored is None:
            return Transaction(), None
        return Transaction().put(Key.node(node_id), evolve(stored.value, fence=None), stored), None

    async def _is_known(self, beat: Heartbeat) -> bool:
        """Whether the node is registered, and by this sender where both say which boot they are.

        Another replica may have taken the registration in a moment ago, so the store is asked.
        """
        if self._view.node(beat.node_id) is None:
            await self._reads.through(Key.node(beat.node_id))
        elif self._is_of_another_boot(beat):
            await self._reads.again(Key.node(beat.node_id))
        return self._view.node(beat.node_id) is not None and not self._is_of_another_boot(beat)

    def _is_of_another_boot(self, beat: Heartbeat) -> bool:
        boot_id = self._registered_boot(beat.node_id)
        return bool(boot_id and beat.boot_id) and boot_id != beat.boot_id

    def _registered_boot(self, node_id: NodeId) -> str:
        node = self._view.node(node_id)
        return node.value.boot_id if node is not None else ""

    def _take(self, beat: Heartbeat) -> None:
        order = BeatOrder(beat.boot_id, beat.sequence, beat.sent_at)
        known = self._beats.get(beat.node_id)
        if beat.boot_id and self._registered_boot(beat.node_id) == beat.boot_id:
            known = begin_boot(known, beat.boot_id)
        verdict, memory = judge_beat(known, order)
        self._beats[beat.node_id] = memory
        if verdict is BeatVerdict.STALE:
            self._ports.observer.increment(Metric.STALE_HEARTBEATS, {})
            return
        self._measure(beat)
        foreign = judge_work(self._marker(), len(beat.reports))
        if foreign is not None:
            self._modes.report(foreign, f"node {beat.node_id} reports {len(beat.reports)}")
            return
        full = bool(beat.boot_id)
        now = self._ports.clock.now()
        self._listing.take(beat.node_id, beat.reports, now, full=full, by_beat=True)
        if full:
            self._node_views.listed_now(beat.node_id)

    def _marker(self) -> ClusterMarker | None:
        stored = self._view.marker()
        return stored.value if stored else None

    def _measure(self, beat: Heartbeat) -> None:
        if beat.usage is not None:
            self._ports.telemetry.record_node_usage(beat.usage)
            self._on_usage(beat.usage)
        for usage in beat.workload_usage:
            assignment = self._view.assignment(usage.workload_id)
            if assignment is not None and assignment.value.node_id == beat.node_id:
                self._ports.telemetry.record_workload_usage(usage)


def _validate(request: RegisterNode) -> None:
    errors = []
    if not is_valid_id(request.node_id):
        errors.append(
            FieldError(
                "node_id",
                "must be 1 to 253 characters of A-Z a-z 0-9 . _ - and start with a letter or digit",
            )
        )
    refusal = registration_refusal(request)
    if refusal is not None:
        errors.append(FieldError("capabilities", refusal.message))
    if errors:
        raise InvalidInputError(errors)
