"""Nodes as the wire shows them, and parts that several answers share."""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.control.answers import Freshness, NodeView
from persys_core.model.resources import Resources, unit_of
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.times import timestamp

__all__ = ["amounts", "node_list", "node_response", "node_view"]

_MILLICORES = 1000


def node_view(view: NodeView) -> pb.NodeView:
    """One node: liveness, operator intent, ledger and capacity side by side."""
    node, intent, fence = view.node, view.node.intent, view.node.fence
    return pb.NodeView(
        node_id=node.id,
        status=str(view.status),
        status_reason=view.status_reason,
        status_updated_by=intent.changed_by,
        status_updated_at=timestamp(intent.changed_at),
        last_heartbeat=timestamp(view.last_heartbeat),
        grpc_endpoint=node.endpoint,
        total_cpu_cores=node.capacity.cpu_millicores / _MILLICORES,
        available_cpu_cores=max(0, view.free.cpu_millicores) / _MILLICORES,
        total_memory_mb=node.capacity.memory_mb,
        available_memory_mb=max(0, view.free.memory_mb),
        supported_workload_types=sorted(node.workload_types),
        labels=node.labels,
        taints=[
            pb.NodeTaint(key=taint.key, value=taint.value, effect=str(taint.effect))
            for taint in intent.taints
        ],
        cordoned=intent.cordoned,
        draining=intent.draining,
        intent_reason=intent.reason,
        allocated=amounts(view.allocated),
        capacity=amounts(node.capacity),
        overcommitted=view.overcommitted,
        reserved=amounts(node.reserved),
        fenced=fence is not None,
        fence_reason=fence.reason if fence else "",
        fenced_at=timestamp(fence.at if fence else None),
        usage=_usage(view),
        usage_reported_at=timestamp(view.usage.reported_at if view.usage else None),
        stop_after_seconds=node.stop_after_seconds,
    )


def _usage(view: NodeView) -> pb.NodeUsage | None:
    if view.usage is None:
        return None
    allocated, used = view.allocated, view.usage.used
    return pb.NodeUsage(
        cpu_allocated_millicores=allocated.cpu_millicores,
        cpu_used_millicores=used.cpu_millicores,
        memory_allocated_mb=allocated.memory_mb,
        memory_used_mb=used.memory_mb,
        disk_allocated_gb=allocated.disk_gb,
        disk_used_gb=used.disk_gb,
    )


def node_list(views: Iterable[NodeView], fresh: Freshness) -> pb.ListNodesResponse:
    """The answer to ListNodes."""
    return pb.ListNodesResponse(
        nodes=map(node_view, views),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def node_response(view: NodeView, fresh: Freshness) -> pb.GetNodeResponse:
    """The answer to GetNode."""
    return pb.GetNodeResponse(
        node=node_view(view),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def amounts(resources: Resources) -> list[pb.ResourceAmount]:
    """One entry per dimension, with its unit."""
    return [
        pb.ResourceAmount(name=name, amount=amount, unit=unit_of(name))
        for name, amount in resources
    ]
