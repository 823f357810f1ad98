"""``assemble``: the parts of one node, put together but not running.

Decided here: who knows whom. Nothing is opened, called or started, so tests put the same parts
together on doubles and virtual time.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from datetime import timedelta

from attrs import field, frozen

from persys_agent.engine.backends import Backends
from persys_agent.engine.board import StatusBoard
from persys_agent.engine.executor import Executor, Limits
from persys_agent.engine.fence import LeaseFence, LeaseMemory
from persys_agent.engine.inventory import Inventory
from persys_agent.engine.local_loop import LocalLoop
from persys_agent.engine.works import Works
from persys_agent.host.usage import HostMeter
from persys_agent.node.counting import Counting
from persys_agent.node.loops import Loops
from persys_agent.reporting.detector import Detector
from persys_agent.reporting.membership import Membership
from persys_agent.reporting.presence import NodePresence
from persys_agent.reporting.reporter import Presence, Reporter, SchedulerCalls
from persys_agent.reporting.usage import UsageCollector
from persys_agent.state.store import AgentState
from persys_agent.tasks.queue import TaskQueue
from persys_agent.wire.gate import Gate
from persys_agent.wire.health import HealthView
from persys_agent.wire.service import AgentService
from persys_agent.wire.streams import Sessions
from persys_core.model.ids import NodeId
from persys_core.model.node import StoragePool, capacity_of
from persys_core.model.resources import Resources
from persys_core.ports.clock import Clock

__all__ = ["Assembly", "NodeOptions", "assemble"]


@frozen
class NodeOptions:
    """What a node is told about itself. ``size`` is the machine's processors and memory,
    ``root_pool`` its disk where no driver names pools. ``stop_after`` ``None``: never."""

    node_id: NodeId
    size: Resources
    root_pool: StoragePool = StoragePool("root")
    reserved: Resources = Resources()
    cluster_id: str = ""
    version: str = "persys-agent 0.1.0"
    labels: Mapping[str, str] = field(factory=dict)
    stop_after: timedelta | None = None
    stop_grace: timedelta = timedelta(seconds=30)
    reconcile_interval: timedelta = timedelta(seconds=30)
    detect_interval: timedelta = timedelta(seconds=60)
    usage_interval: timedelta = timedelta(seconds=15)
    runtime_deadline: timedelta = timedelta(seconds=5)
    workers: int = 10
    history_limit: int = 1000


@frozen
class Assembly:
    """The parts of a node. ``service`` answers calls as soon as ``queue`` is started."""

    works: Works
    loop: LocalLoop
    fence: LeaseFence
    gate: Gate
    detector: Detector
    collector: UsageCollector
    presence: NodePresence
    service: AgentService
    health: HealthView
    loops: Loops
    counting: Counting
    membership: Membership

    def refresh_metrics(self) -> None:
        """Set the gauges to what is so now."""
        self.counting.refresh(self.works, self.detector, self.collector)

    def reporter(self, scheduler: SchedulerCalls, rng: random.Random | None = None) -> Reporter:
        """What tells ``scheduler`` of this node."""
        inventory = self.works.inventory
        presence = Presence(self.presence.registration, self.presence.beat, inventory.answer_within)
        return Reporter(
            scheduler, presence, self.gate, self.fence, self.works.clock, rng,
            membership=self.membership,
        )  # fmt: skip


def assemble(
    options: NodeOptions,
    state: AgentState,
    backends: Backends,
    clock: Clock,
    rng: random.Random | None = None,
    *,
    lease: LeaseMemory | None = None,
) -> Assembly:
    """Put a node together on a state that is loaded."""
    detector = Detector(backends, state, clock, options.detect_interval)
    fence = LeaseFence(clock, options.stop_after, lease)
    counting = Counting(state)
    works = _works(
        options, state, backends, clock, fence=fence, detector=detector, counting=counting
    )
    collector = UsageCollector(backends, HostMeter(), clock, options.usage_interval)
    presence = NodePresence(
        node_id=options.node_id,
        cluster_id=options.cluster_id,
        version=options.version,
        labels=options.labels,
        capacity=lambda: _capacity(options, detector),
        reserved=options.reserved,
        stop_after=options.stop_after,
        boot_id=uuid.uuid4().hex,
        works=works,
        detector=detector,
        collector=collector,
    )
    gate = Gate(state, backends.checks)
    loops, membership = Loops(clock), Membership()
    health = HealthView(
        options.version,
        state,
        lambda: detector.current,
        lambda: collector.host.use,
        lambda: loops.problem or membership.refusal,
    )
    return Assembly(
        works=works,
        loop=LocalLoop(
            works,
            interval=options.reconcile_interval,
            may_start=fence.may_start,
            rng=rng,
            on_pass=counting.looked,
            on_failure=counting.operation_failed,
        ),
        fence=fence,
        gate=gate,
        detector=detector,
        collector=collector,
        presence=presence,
        service=AgentService(works, gate, health, Sessions(state, backends), collector.newest),
        health=health,
        loops=loops,
        counting=counting,
        membership=membership,
    )


def _works(
    options: NodeOptions,
    state: AgentState,
    backends: Backends,
    clock: Clock,
    *,
    fence: LeaseFence,
    detector: Detector,
    counting: Counting,
) -> Works:
    inventory = Inventory(backends, options.runtime_deadline, detector.hear)
    limits = Limits(lambda: _capacity(options, detector)[0], options.reserved, options.stop_grace)
    executor = Executor(
        state,
        backends,
        inventory,
        clock,
        limits,
        may_start=fence.may_start,
        is_busy=lambda workload_id: queue.open_task(workload_id) is not None,
    )
    queue = TaskQueue(
        state,
        executor.carry_out,
        clock,
        workers=options.workers,
        history_limit=options.history_limit,
        on_ended=counting.task_ended,
    )
    board = StatusBoard(state, queue, inventory, clock)
    return Works(state, queue, executor, inventory, board, clock)


def _capacity(
    options: NodeOptions, detector: Detector
) -> tuple[Resources, tuple[StoragePool, ...]]:
    """What the node has, and in which pools its disk lies."""
    pools = detector.current.pools or (options.root_pool,)
    size = options.size
    return capacity_of(size.cpu_millicores, size.memory_mb, pools), pools
