"""The settings of one scheduler replica, and the ports that it runs on. Plain values."""

from __future__ import annotations

import random
from datetime import timedelta

from attrs import field, frozen

from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.model.drift import OrphanPolicy
from persys_core.model.replica import HaMode
from persys_core.model.states import WorkloadType
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.events import EventLog
from persys_core.ports.liveness import Liveness
from persys_core.ports.membership import Membership
from persys_core.ports.observer import NullObserver, Observer
from persys_core.ports.telemetry import Telemetry
from persys_core.reconcile.reapply import ReapplyPolicy
from persys_core.reconcile.situation import Timing
from persys_core.retry.policy import RetryPolicy

__all__ = ["HaConfig", "SchedulerConfig", "SchedulerPorts"]


@frozen
class HaConfig:
    """This replica among others. ``version`` and ``address`` are what it says of itself."""

    mode: HaMode = HaMode.FAILOVER
    shard_count: int = 1
    shard_index: int = 0
    version: str = ""
    address: str = ""


@frozen
class SchedulerConfig:
    """Policies and intervals; the defaults are those of decisions, values."""

    cluster_id: str = "persys"
    liveness: LivenessPolicy = LivenessPolicy()
    retry: RetryPolicy = RetryPolicy()
    reapply: ReapplyPolicy = ReapplyPolicy()
    timing: Timing = Timing()
    reconcile_interval: timedelta = timedelta(seconds=5)
    reconcile_concurrency: int = 64
    agent_rpc_timeout: timedelta = timedelta(seconds=10)
    drift_interval: timedelta = timedelta(seconds=30)
    orphan_policy: OrphanPolicy = OrphanPolicy.REPORT
    pending_sweep_interval: timedelta = timedelta(seconds=30)
    probe_interval: timedelta = timedelta(seconds=3)
    probe_timeout: timedelta = timedelta(seconds=5)
    api_timeout: timedelta = timedelta(seconds=10)
    drain_after_degraded: timedelta = timedelta(seconds=60)
    commit_attempts: int = 32
    compact_interval: timedelta = timedelta(minutes=5)
    """How much of the store's history is kept for watchers, about; zero leaves it alone."""
    ha: HaConfig = HaConfig()

    def apply_timeout(self, workload_type: WorkloadType) -> timedelta:
        """How long a start of this type may take before it counts as stuck."""
        return self.reapply.base(workload_type)


@frozen
class SchedulerPorts:
    """Everything outside the core that one replica uses."""

    store: ClusterStore
    liveness: Liveness
    membership: Membership
    agents: Agents
    events: EventLog
    telemetry: Telemetry
    clock: Clock
    rng: random.Random
    observer: Observer = field(factory=NullObserver)
    memory: ClusterMemory = field(factory=MemoryClusterMemory)
