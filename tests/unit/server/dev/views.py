"""Views as the API answers them, in one line each."""

from __future__ import annotations

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture


def node(
    node_id: str, status: str = "Ready", types: tuple[str, ...] = ("container",)
) -> pb.NodeView:
    """A node of 8 cores and 16 GB, half of it in use."""
    return pb.NodeView(
        node_id=node_id,
        status=status,
        status_reason="heartbeat expired" if status == "NotReady" else "",
        total_cpu_cores=8,
        available_cpu_cores=4,
        total_memory_mb=16 * 1024,
        available_memory_mb=8 * 1024,
        supported_workload_types=types,
    )


def workload(
    workload_id: str,
    status: str = "Running",
    node_id: str = "",
    *,
    kind: str = "container",
    why: str = "",
) -> pb.WorkloadView:
    """A workload that is wanted running; ``why`` is its reason, message and code."""
    reason = pb.ReasonDetail(code="unschedulable", message=why) if why else None
    return pb.WorkloadView(
        workload_id=workload_id,
        type=kind,
        desired_state="Running",
        status=status,
        assigned_node_id=node_id,
        reason=reason,
    )


def picture(*views: pb.NodeView | pb.WorkloadView) -> Picture:
    """Nodes and workloads, in the order given."""
    return Picture(
        nodes=tuple(view for view in views if isinstance(view, pb.NodeView)),
        workloads=tuple(view for view in views if isinstance(view, pb.WorkloadView)),
    )


def unschedulable() -> pb.Explanation:
    """Why ``big`` waits on two nodes."""
    return pb.Explanation(
        verdict="unschedulable",
        summary="0/2 nodes: 1 selector gpu=yes, 1 cpu",
        next_step="it is tried again when something changes",
        reasons=[
            pb.ReasonCount(
                code="selector",
                nodes=1,
                message="gpu=yes",
                examples=[pb.NodeRejection(node_id="n1")],
            ),
            pb.ReasonCount(code="cpu", nodes=1, unit="millicores", asked=64_000, free_max=15_500),
        ],
    )
