"""Whether a demonstration went as it should. Pure: pictures in, findings out.

Decided here: when a workload is settled, which node may be killed without stranding work, and
what has to be true at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import frozen

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture

__all__ = [
    "Finding",
    "has_moved",
    "has_settled",
    "is_at_rest",
    "judge_workload",
    "victim_of",
    "why_waiting",
]

_AT_REST = ("Running", "Completed")
_UNSCHEDULABLE = "unschedulable"


@frozen
class Finding:
    """One line of the summary: what was looked at, whether it is well, and how it stands."""

    subject: str
    is_well: bool
    text: str


def is_at_rest(view: pb.WorkloadView) -> bool:
    """Whether a workload is as it was wished to be."""
    return view.status in _AT_REST or view.status == view.desired_state


def why_waiting(view: pb.WorkloadView) -> str:
    """Why a workload is not as it was wished to be; empty where it is."""
    if is_at_rest(view):
        return ""
    return view.reason.message or view.failure_reason or view.reason.code


def has_settled(picture: Picture, workload_ids: Iterable[str]) -> bool:
    """Whether each of them is at rest, or waits without a node and says why."""
    views = [picture.workload(each) for each in workload_ids]
    return all(view is not None and (is_at_rest(view) or _waits(view)) for view in views)


def _waits(view: pb.WorkloadView) -> bool:
    return view.status == "Pending" and not view.assigned_node_id and bool(view.reason.code)


def victim_of(picture: Picture) -> str:
    """The Ready node that runs most containers and can be spared; empty where there is none.

    A node can be spared where some other Ready node runs every type of work that it has.
    """
    ready = [node for node in picture.nodes if node.status == "Ready"]
    containers = Counter(
        view.assigned_node_id
        for view in picture.workloads
        if view.status == "Running" and view.type == "container"
    )
    able = [
        node.node_id
        for node in ready
        if containers[node.node_id] and _can_be_spared(picture, node, ready)
    ]
    return min(able, key=lambda node_id: (-containers[node_id], node_id), default="")


def _can_be_spared(picture: Picture, node: pb.NodeView, ready: Iterable[pb.NodeView]) -> bool:
    elsewhere = {
        kind
        for other in ready
        if other.node_id != node.node_id
        for kind in other.supported_workload_types
    }
    return {view.type for view in picture.on_node(node.node_id) if is_running(view)} <= elsewhere


def is_running(view: pb.WorkloadView) -> bool:
    """Whether a workload really runs, so that its node's death is felt."""
    return view.status == "Running"


def has_moved(picture: Picture, workload_ids: Iterable[str], node_id: str) -> bool:
    """Whether each of them is at rest on another node than ``node_id``."""
    views = [picture.workload(each) for each in workload_ids]
    return all(
        view is not None and is_at_rest(view) and view.assigned_node_id not in ("", node_id)
        for view in views
    )


def judge_workload(
    picture: Picture, workload_id: str, explanations: Mapping[str, pb.Explanation]
) -> Finding:
    """At rest is well; so is waiting for a reason that the scheduler can name."""
    view = picture.workload(workload_id)
    if view is None:
        return Finding(workload_id, False, "is not there")
    where = f" on {view.assigned_node_id}" if view.assigned_node_id else ""
    if is_at_rest(view):
        return Finding(workload_id, True, f"{view.status}{where}")
    explanation = explanations.get(workload_id, pb.Explanation())
    if explanation.verdict == _UNSCHEDULABLE and explanation.reasons:
        return Finding(workload_id, True, f"{view.status}, explained: {explanation.summary}")
    why = explanation.summary or why_waiting(view) or "no reason is given"
    return Finding(workload_id, False, f"{view.status or 'Unknown'}{where}: {why}")
