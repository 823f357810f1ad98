"""Scheduler: one replica. Wires the application layer over its ports and runs its loops.

Every replica serves the API, follows the store and the nodes, and campaigns; the loops that place,
send and move run only while it leads, under a fence, and end with the leadership.

Size: the whole wiring of a replica, and the order in which it begins and ends, in one place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from persys_core.control.admission import Admission
from persys_core.control.admission_nodes import NodeAdmission
from persys_core.control.admission_workloads import WorkloadAdmission
from persys_core.control.agent_calls import NodeReach
from persys_core.control.announced import Announced
from persys_core.control.apply_decision import ApplyRules
from persys_core.control.automation import Automation
from persys_core.control.committer import Committer
from persys_core.control.company import Company
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.coordinator import Coordinator
from persys_core.control.drift_notes import DriftNotes
from persys_core.control.events import EventPublisher
from persys_core.control.explaining import Explaining
from persys_core.control.fleet_feed import FleetFeed
from persys_core.control.hand_over import PATIENCE
from persys_core.control.import_writer import ImportWriter
from persys_core.control.leadership import LeadershipLoop
from persys_core.control.leading import LeadingLoops
from persys_core.control.listing import Listing
from persys_core.control.loops import LoopLag, PeriodicLoop
from persys_core.control.mode_supervisor import ModeSupervisor
from persys_core.control.node_monitor import NodeMonitor
from persys_core.control.node_operations import NodeOperations
from persys_core.control.node_views import NodeViews
from persys_core.control.observations import Observations
from persys_core.control.orphan_copies import OrphanCopies
from persys_core.control.ownership import Ownership
from persys_core.control.pending import Pending
from persys_core.control.placing import Placing
from persys_core.control.planning import Planning
from persys_core.control.presence import Presence
from persys_core.control.queries import Queries
from persys_core.control.reads import Reads
from persys_core.control.recovery import Recovery
from persys_core.control.standing import Standing
from persys_core.control.usage_ends import end_usage_with_work
from persys_core.control.view import ClusterView
from persys_core.control.volume_operations import VolumeOperations
from persys_core.control.work import Work
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId
from persys_core.model.replica import HaMode
from persys_core.modes.machine import ModeState
from persys_core.nodes.eviction import EvictionPolicy
from persys_core.placement.fleet import Fleet
from persys_core.placement.placer import Placer
from persys_core.placement.reservations import Reservations
from persys_core.ports.cluster_store import (
    Kind,
    Resync,
    Snapshot,
    StoreUnavailableError,
    WatchBatch,
)
from persys_core.ports.events import EventLog
from persys_core.ports.membership import Leadership
from persys_core.ports.observer import Metric
from persys_core.volumes.following import with_volumes

__all__ = ["Scheduler"]

_log = logging.getLogger("persys.scheduler")
RETRY_STORE_AFTER = timedelta(seconds=1)
PROBES_TO_BE_STALE = 3
"""So many probes in a row without an answer make every read say that it may be old."""


class Scheduler:
    """One scheduler replica; ``start`` it, use its APIs, ``stop`` it.

    Size: it is the wiring of the application layer, and holds no decision of its own.
    """

    def __init__(self, ports: SchedulerPorts, config: SchedulerConfig) -> None:
        self.ports = ports
        self.config = config
        self.view = ClusterView()
        self.pending = Pending(self.view)
        self.reservations = Reservations()
        self.drift_notes = DriftNotes(self.view, config.timing.missing_grace)
        self.observations = Observations(self.drift_notes.confirm)
        self.publisher = EventPublisher(ports.events, ports.clock)
        self.reach = NodeReach(ports, config)
        silence = config.probe_interval * PROBES_TO_BE_STALE
        self.reads = Reads(ports.store, self.view, ports.clock, silence)
        self.committer = Committer(
            ports.store,
            self.view,
            ports.membership,
            ports.rng,
            ports.observer,
            config.commit_attempts,
            self._on_store_failure,
            lambda tx: with_volumes(tx, self.view, ports.clock.now()),
        )
        self.modes = ModeSupervisor(
            ports.store,
            ports.memory,
            self.view,
            self.committer,
            self.publisher,
            ports.clock,
            config,
            self._token,
        )
        end_usage_with_work(self.view, ports.telemetry)
        self._fleet = Fleet()
        self._feed = FleetFeed(
            self.view, self._fleet, self.reservations, ports.liveness, self._on_capacity
        )
        self._copies = OrphanCopies(self.view, ports.clock, self._feed.is_alive)
        self.placing = Placing(
            self.view,
            Placer(self._fleet, self.reservations),
            self.reservations,
            self.publisher,
            ports.clock,
            ports.observer,
            self._feed.is_alive,
            self._copies,
        )
        self._wire_nodes()
        self._wire_apis()

    def _wire_nodes(self) -> None:
        ports, config = self.ports, self.config
        self.node_views = NodeViews(
            self.view, ports.liveness, ports.telemetry, ports.clock, config.liveness
        )
        self.monitor = NodeMonitor(
            self.view,
            ports.liveness,
            ports.agents,
            self._feed,
            self.node_views,
            self.publisher,
            ports.clock,
            self.reach,
            EvictionPolicy(window=config.liveness.lease),
        )
        self.listing = Listing(
            self.view, self.observations, self._nudge, self.drift_notes, self._copies
        )
        self._lag = LoopLag(ports.clock)
        self._leading: LeadingLoops | None = None
        self._is_foreign = False
        """Whether the watch shows a store that is not ours."""
        self._tasks: list[asyncio.Task[None]] = []
        self._own_loops = self._make_loops()
        self.ready = asyncio.Event()

    def _wire_apis(self) -> None:
        announced = Announced()
        nodes = NodeAdmission(
            self.view,
            self.reads,
            self.committer,
            self.listing,
            self.modes,
            self.node_views,
            self.publisher,
            self.ports,
            self.config,
            self._feed.set_usage,
            self._on_heard,
            announced,
        )
        workloads = WorkloadAdmission(
            self.view,
            self.reads,
            self.committer,
            self.placing,
            self.node_views,
            ApplyRules(self.view, self.placing, self.ports.clock, self._token),
            self.publisher,
            self.ports.clock,
            self.modes.require_writable,
            self.modes.require_deletable,
        )
        self.admission = Admission(nodes, workloads)
        self.automation = Automation(
            workloads, self.publisher, self.ports.clock, self.modes.require_writable
        )
        self.nodes = NodeOperations(
            self.view,
            self.reads,
            self.committer,
            self.node_views,
            self.placing,
            self.publisher,
            self.ports.clock,
            self.modes.require_writable,
        )
        self.recovery = self._make_recovery(announced)
        self._wire_replicas()
        self._wire_queries()

    def _wire_replicas(self) -> None:
        ports, ha = self.ports, self.config.ha
        self._presence = Presence(ports.membership, self.view, ports.clock, ha)
        self._acting_for: Leadership | None = None
        self._company = Company(
            ports.membership, ports.store, self.view, ports.clock, self.publisher, ha
        )
        self._leadership = LeadershipLoop(
            ports.membership,
            self._presence,
            self.view,
            ports.clock,
            ha,
            self._begin_to_act,
            self._end_to_act,
            self._on_bug,
        )
        self._coordinator = Coordinator(
            ports.membership, self.view, self.committer, self.publisher, ports.clock
        )

    def _wire_queries(self) -> None:
        self.volumes = VolumeOperations(
            self.view,
            self.reads,
            self.committer,
            self.node_views,
            self.publisher,
            self.ports.clock,
            self.config,
            self.modes.require_writable,
        )
        explaining = Explaining(self.view, self.placing, self.node_views, self.ports.clock)
        self.queries = Queries(
            self.view,
            self.reads,
            self.node_views,
            explaining,
            Planning(self.view, self.placing, explaining, self.ports.clock),
            self.modes,
            self.ports,
            self.config,
            lambda: self.standing,
            lambda: self.monitor.alarms,
        )

    def _make_recovery(self, announced: Announced) -> Recovery:
        return Recovery(
            self.view,
            self.ports,
            self.config,
            self.committer,
            self.modes,
            announced,
            self.publisher,
            ImportWriter(self.view, self.committer, self.placing, self.ports.clock, self._token),
            lambda: self._is_foreign,
            self._take_store,
            self._begin_anew,
            self._token,
        )

    # What servers read

    @property
    def events(self) -> EventLog:
        """The event log, for readers."""
        return self.ports.events

    @property
    def instance_id(self) -> str:
        """This replica's name."""
        return self.ports.membership.instance_id

    @property
    def mode(self) -> ModeState:
        """The operating mode, why and since when."""
        return self.modes.state

    @property
    def is_leader(self) -> bool:
        """Whether this replica's loops act at the moment."""
        return self._leading is not None

    @property
    def leader_id(self) -> str:
        """The instance that leads, as far as this replica knows."""
        return self._company.leader_id

    @property
    def standing(self) -> Standing:
        """What this replica is among the others; coverage is as of the last probe."""
        return self._company.standing(acts=self.is_leader and self.modes.may_act)

    def acts_for(self, node_id: NodeId) -> bool:
        """Whether this replica may begin something for the node at this moment, or is still at it;
        ``""``: for what has no node."""
        return self._leading is not None and self._leading.acts_for(node_id)

    @property
    def loops(self) -> Mapping[str, PeriodicLoop]:
        """The loops that run now, by name."""
        leading = self._leading.loops if self._leading else {}
        return {**self._own_loops, **leading}

    # Life

    async def start(self) -> None:
        """Load the store's state and begin to work; returns once the API can be served.

        A store that is away is waited for; cancel to give up. HaMismatchError where the other
        replicas share the work in another way.
        """
        told = ""
        while True:
            try:
                # Nothing is written to a store before it was judged.
                await self.modes.bootstrap()
                self._presence.check()
                break
            except StoreUnavailableError as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("the store does not answer yet: %s", told)
                self.modes.on_failure(error)
                await self.ports.clock.sleep(RETRY_STORE_AFTER)
        with suppress(StoreUnavailableError):
            # A store that is full takes no record, and can be read all the same: tried again later.
            await self._presence.begin()
        self.ports.liveness.grace_all(self.view.all(Kind.NODE), self.config.liveness.lease)
        await self.monitor.tick()
        self.reads.connected = True
        self._spawn("watch", self._watch())
        self._spawn("presence", self._presence.run())
        self._spawn("leadership", self._leadership.run())
        if self.config.ha.mode is HaMode.ELASTIC:
            self._spawn("coordinator", self._coordinator.run())
        self._spawn("lag", self._lag.run())
        for name, loop in self._own_loops.items():
            self._spawn(name, loop.run())
        self.ready.set()

    async def stop(self) -> None:
        """End the loops, resign, and leave everything else as it is.

        The next one is not kept waiting for an agent that hangs: what does not end soon is cut off.
        """
        self.ready.clear()
        if self._leading is not None:
            await self._leading.finish(PATIENCE)
        await self.abandon()
        await self.modes.remember()

    async def abandon(self) -> None:
        """End everything at once, as a crash would; calls under way are cut off."""
        for task in reversed(self._tasks):
            task.cancel()
        for task in reversed(self._tasks):
            with suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(coroutine, name=f"{self.instance_id}:{name}"))

    # Loops of every replica

    def _make_loops(self) -> dict[str, PeriodicLoop]:
        tick = min(self.config.liveness.heartbeat_interval / 2, timedelta(seconds=1))
        bodies = {
            "mode": (self.config.probe_interval, self._probe),
            "nodes": (tick, self._tick),
        }
        return {
            name: PeriodicLoop(
                name,
                interval,
                body,
                self.ports.clock,
                on_bug=self._on_bug,
                jitter=0.1,
                rng=self.ports.rng,
            )
            for name, (interval, body) in bodies.items()
        }

    async def _probe(self) -> None:
        was_recovery = self.modes.state.is_recovery
        await self.modes.probe()
        if was_recovery and not self.modes.is_frozen:
            # Another replica led the cluster out of recovery, or the data is back.
            with suppress(StoreUnavailableError):
                await self._see_anew()
            await self._begin_anew()
        if not self.modes.is_frozen:
            self.reads.confirm()
        with suppress(StoreUnavailableError):
            await self._company.look()
            self.modes.foreign_leader = self._company.foreign_leader

    async def _tick(self) -> None:
        self.node_views.lag = self._lag.current()
        await self.monitor.tick()

    async def _watch(self) -> None:
        """Follow the store for ever; what cannot be followed is tried again."""
        while True:
            try:
                async for event in self.ports.store.watch(self.view.revision):
                    self._take(event)
            except StoreUnavailableError as error:
                self.reads.connected = False
                self.modes.on_failure(error)
            except Exception as error:  # the edge of a loop: it must outlive every bug
                self._on_bug("watch", error)
            await self.ports.clock.sleep(RETRY_STORE_AFTER)

    def _take(self, event: WatchBatch | Resync) -> None:
        self.reads.connected = True
        match event:
            case WatchBatch() if self._is_foreign:
                return
            case WatchBatch(revision, changes):
                self.view.apply(revision, changes)
                if self._company.wrote(event) and self._leading is not None:
                    self._leading.audit_soon()
            case Resync(snapshot):
                self._load(snapshot)
        self.reads.confirm()

    def _load(self, snapshot: Snapshot) -> None:
        """Replace the view, unless this is not our data, or older than what is known.

        An empty view, filled again piece by piece, would look like a cluster whose nodes left. So
        the last good one is kept until the data is back, which a further Resync tells.
        """
        self._is_foreign = not self.modes.is_ours(snapshot)
        if self._is_foreign or snapshot.revision < self.view.revision:
            return
        self.view.load(snapshot)
        if self._leading is not None:
            self._leading.audit_soon()

    async def _see_anew(self) -> None:
        """The view may be of the store that was in doubt, and of a higher revision."""
        snapshot = await self.ports.store.snapshot()
        if self.modes.is_ours(snapshot):
            self._take_store(snapshot)

    def _take_store(self, snapshot: Snapshot) -> None:
        """An operator takes the store as it is: it is the view, whatever was known before."""
        self._is_foreign = False
        self.view.load(snapshot)
        self.drift_notes.clear()
        self.reads.confirm()

    async def _begin_anew(self) -> None:
        """The cluster is whole again. Its agents, which were refused, come back within a backoff,
        so none of them is missed before."""
        lease = self.config.liveness.returning_lease
        self.ports.liveness.grace_all(self.view.all(Kind.NODE), lease)
        self.monitor.take_over()
        self.reach.take_over()
        await self.monitor.tick()
        if self._leading is not None:
            self._leading.audit_soon()

    # Leadership

    async def _begin_to_act(self, leadership: Leadership, ownership: Ownership) -> LeadingLoops:
        self.reservations.clear()
        # What happened while another replica led must be known before anything is decided.
        await self._catch_up()
        self.ports.liveness.grace_all(self.view.all(Kind.NODE), self.config.liveness.lease)
        self.monitor.take_over()
        self.reach.take_over()
        self._leading = LeadingLoops(self, leadership, ownership, self._on_bug)
        self.monitor.owns = ownership.owns
        self.monitor.on_condition = self._leading.node_changed
        self._acting_for = leadership
        _log.info("%s %s", self.instance_id, _acts_as(leadership))
        if leadership.election:
            self._company.leads()
            self.modes.foreign_leader = self._company.foreign_leader
            self.publisher.publish(EventType.LEADER_ELECTED, details=self._acting_as(leadership))
        return self._leading

    def _end_to_act(self) -> None:
        self._leading = None
        self.monitor.on_condition = None
        acted_for, self._acting_for = self._acting_for, None
        if acted_for is not None:
            _log.info("%s %s no more", self.instance_id, _acts_as(acted_for))
        if acted_for is not None and acted_for.election:
            self.publisher.publish(EventType.LEADER_LOST, details=self._acting_as(acted_for))

    def _acting_as(self, leadership: Leadership) -> Mapping[str, str]:
        return {"instance_id": self.instance_id, "election": leadership.election}

    async def _catch_up(self) -> None:
        while True:
            try:
                snapshot = await self.ports.store.snapshot()
            except StoreUnavailableError:
                await self.ports.clock.sleep(RETRY_STORE_AFTER)
                continue
            self._load(snapshot)
            return

    # Nudges

    def _nudge(self, work: Work) -> None:
        if self._leading is not None:
            self._leading.nudge(work)

    def _on_capacity(self) -> None:
        if self._leading is not None:
            self._leading.capacity_changed()

    def _on_heard(self, node_id: NodeId) -> None:
        self.reach.heard(node_id)
        self.monitor.heard(node_id)
        if self._leading is not None:
            self._leading.node_heard(node_id)

    def _on_store_failure(self, error: Exception) -> None:
        self.modes.on_failure(error)

    def _on_bug(self, where: object, error: Exception) -> None:
        """An exception that nobody expected: logged as a bug, counted, and nothing stops."""
        place = where if isinstance(where, str) else "worker"
        self.ports.observer.increment(Metric.BUGS, {"where": place})
        _log.error("this is a bug in %s: %s", where, error, exc_info=error)

    def _token(self) -> str:
        return f"{self.ports.rng.getrandbits(64):016x}"


def _acts_as(leadership: Leadership) -> str:
    """For the log."""
    where = f"leads {leadership.election}" if leadership.election else "takes part in sharing nodes"
    return f"{where} (epoch {leadership.epoch})"
