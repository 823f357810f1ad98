"""Where a workload is: the scheduler is the directory of agents.

Decided here: how it is told that a workload is nowhere, and when its output has an end for good.
"""

from __future__ import annotations

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.agent import Place
from persysctl.client import Client
from persysctl.errors import RefusedError
from persysctl.output.tables import why

__all__ = ["is_over", "locate", "place_of"]


async def locate(client: Client, workload_id: str) -> Place:
    """Where it is. Raises RefusedError where it is nowhere, with the reason."""
    view = (await client.workload(workload_id)).workload
    place = await place_of(client, view)
    if place is None:
        raise RefusedError(f"workload {workload_id} is on no node: {_standing(view)}")
    return place


async def place_of(client: Client, view: pb.WorkloadView) -> Place | None:
    """Where the scheduler has it; ``None``: nowhere now."""
    if not view.assigned_node_id:
        return None
    node = await _node(client, view)
    if not node.grpc_endpoint:
        raise RefusedError(
            f"workload {view.workload_id} is on node {view.assigned_node_id}, whose agent told the"
            " scheduler no address"
        )
    return Place(view.assigned_node_id, node.grpc_endpoint, _trouble(node))


def _trouble(node: pb.NodeView) -> str:
    if node.status == "Ready":
        return ""
    return f"{node.status} ({node.status_reason or 'no reason given'})"


async def _node(client: Client, view: pb.WorkloadView) -> pb.NodeView:
    try:
        return (await client.node(view.assigned_node_id)).node
    except RefusedError as error:
        if not error.not_found:
            raise
        raise RefusedError(
            f"workload {view.workload_id} is on node {view.assigned_node_id}, which the scheduler"
            " does not know any more",
            retryable=True,
        ) from error


def is_over(view: pb.WorkloadView) -> bool:
    """Whether no more output is to be expected: it is deleted, stopped, or ended for good."""
    if view.status == "Failed":
        return not view.HasField("retry_next_at")
    return view.status in ("Deleted", "Stopped", "Completed")


def _standing(view: pb.WorkloadView) -> str:
    reason = why(view)
    return f"{view.status or 'no status'} ({reason})" if reason else view.status or "no status"
