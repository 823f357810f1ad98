"""Settings of the environment to the core's policies. One line per setting; nothing is decided."""

from __future__ import annotations

from importlib.metadata import version

from persys_core.control.config import HaConfig, SchedulerConfig
from persys_core.model.states import WorkloadType
from persys_core.nodes.liveness import LivenessPolicy
from persys_core.reconcile.reapply import ReapplyPolicy
from persys_core.reconcile.situation import Timing
from persys_server.advertised import advertised
from persys_server.settings import Settings

__all__ = ["scheduler_config"]


def scheduler_config(settings: Settings) -> SchedulerConfig:
    """The configuration of the scheduler that ``settings`` ask for."""
    return SchedulerConfig(
        liveness=LivenessPolicy(
            heartbeat_interval=settings.heartbeat_interval,
            unavailable_grace=settings.node_unavailable_grace,
        ),
        reapply=ReapplyPolicy(
            guard=settings.reapply_guard,
            timeouts={
                WorkloadType.CONTAINER: settings.agent_apply_timeout,
                WorkloadType.COMPOSE: settings.agent_apply_timeout,
                WorkloadType.VM: settings.agent_vm_apply_timeout,
                WorkloadType.MICROVM: settings.agent_vm_apply_timeout,
            },
        ),
        timing=Timing(
            missing_grace=settings.missing_grace,
            delete_timeout=settings.agent_delete_timeout,
            poll_interval=settings.agent_status_poll_interval,
        ),
        reconcile_interval=settings.reconcile_interval,
        reconcile_concurrency=settings.reconcile_concurrency,
        drift_interval=settings.drift_interval,
        orphan_policy=settings.orphan_policy,
        agent_rpc_timeout=settings.agent_rpc_timeout,
        compact_interval=settings.etcd_compact_interval,
        ha=HaConfig(
            mode=settings.ha_mode,
            shard_count=settings.shard_count,
            shard_index=settings.shard_index,
            version=version("persys-server"),
            address=advertised(settings),
        ),
    )
