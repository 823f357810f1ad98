"""Answers to operators about nodes: words for people, and how far a drain is.

Decided here: that each text says what is so now, since an order that was given before is accepted
again and changes nothing.
"""

from __future__ import annotations

from persys_core.control.answers import DrainProgress, NodeRemoval, NodeView
from persys_core.control.requests import NodeLabelChange, NodeTaintChange
from persys_core.model.counted import counted
from persys_core.model.event import capped
from persys_core.model.node import OperatorIntent, Taint
from persys_core.model.states import TaintEffect
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import quoted
from persys_server.grpc.mapping.nodes_out import node_view
from persys_server.grpc.mapping.times import timestamp

__all__ = [
    "drain_progress",
    "drain_response",
    "label_deleted_words",
    "label_set_words",
    "removal_response",
    "taint_words",
    "untaint_words",
]

_NAMED = 5


def drain_response(view: NodeView, progress: DrainProgress) -> pb.DrainNodeResponse:
    """The answer to DrainNode; what it counts has yet to move."""
    return pb.DrainNodeResponse(
        accepted=True,
        message=_drain_words(progress),
        relocated_workloads=progress.remaining,
        node=node_view(view),
        replaced=_replaced_words(view),
    )


def drain_progress(progress: DrainProgress) -> pb.GetDrainProgressResponse:
    """The answer to GetDrainProgress."""
    return pb.GetDrainProgressResponse(
        moved=progress.moved,
        remaining=progress.remaining,
        moving=progress.moving,
        blocked=[
            pb.DrainBlocker(
                workload_id=each.workload_id, code=str(each.code), reason=capped(each.reason)
            )
            for each in progress.blocked
        ],
        deadline_at=timestamp(progress.deadline_at),
        force=progress.force,
        stopped=progress.stopped,
        owed_workload_ids=progress.owed,
    )


def removal_response(node_id: str, removal: NodeRemoval) -> pb.RemoveNodeResponse:
    """The answer to RemoveNode."""
    return pb.RemoveNodeResponse(
        accepted=removal.accepted,
        message=_removal_words(node_id, removal),
        workload_ids=sorted({*removal.assigned, *removal.owed}),
    )


def _removal_words(node_id: str, removal: NodeRemoval) -> str:
    held = "; ".join(
        f"{len(ids)} {what} ({', '.join(ids[:_NAMED])}{', …' if len(ids) > _NAMED else ''})"
        for ids, what in ((removal.assigned, "assigned"), (removal.owed, "not yet deleted there"))
        if ids
    )
    if not removal.accepted:
        return (
            f"{node_id} has workloads: {held}; drain the node, stop or delete what rests there, or"
            " remove it by force if the machine is gone for good"
        )
    lost = f"; it had {held}: what is to run is placed elsewhere" if held else ""
    back = "; its agent still beats and will register again: stop it" if removal.beats else ""
    return f"removed{lost}{back}"


def taint_words(request: NodeTaintChange) -> str:
    """What a taint does from now on."""
    mark = Taint(request.key, request.value, request.effect or TaintEffect.NO_SCHEDULE)
    match request.effect:
        case TaintEffect.NO_EXECUTE:
            then = "no work comes here that does not tolerate it, and what runs here moves away"
        case TaintEffect.PREFER_NO_SCHEDULE:
            then = "work that does not tolerate it comes here only if no other node takes it"
        case _:
            then = "no work comes here that does not tolerate it; what runs here stays"
    return f"tainted {mark}: {then}"


def untaint_words(request: NodeTaintChange) -> str:
    """Which taints are gone; an empty effect stood for all of them."""
    effect = f"effect {request.effect}" if request.effect else "any effect"
    return f"the node has no taint {quoted(request.key)} of {effect} now"


def label_set_words(request: NodeLabelChange) -> str:
    """The label as it is."""
    return f"label {quoted(request.key)} is now {quoted(request.value or '')}"


def label_deleted_words(request: NodeLabelChange, view: NodeView) -> str:
    """That it is gone, or that the agent's own shows again."""
    under = view.node.labels.get(request.key)
    if under is None:
        return f"the node has no label {quoted(request.key)} now"
    return f"label {quoted(request.key)} is its agent's again: {quoted(under)}"


def _replaced_words(view: NodeView) -> str:
    """What an earlier order said; nothing where there was none, or it said the same."""
    old, new = view.replaced, view.node.intent
    if old is None or (_terms(old), old.reason) == (_terms(new), new.reason):
        return ""
    reason = f", reason {quoted(old.reason)}" if old.reason else ", no reason"
    return f"{_terms(old)}{reason}"


def _terms(intent: OperatorIntent) -> str:
    order = intent.drain
    if order is None or order.deadline_at is None:
        return "no deadline"
    then = "stopped" if order.force else "left in place"
    return f"deadline {order.deadline_at:%Y-%m-%dT%H:%M:%SZ}, what is left then is {then}"


def _drain_words(progress: DrainProgress) -> str:
    if not progress.remaining:
        return "draining: nothing has to move"
    text = f"draining: {counted(progress.remaining, 'workload')} to move"
    if progress.blocked:
        text += f", {len(progress.blocked)} with no other place at present"
    return text + "; GetDrainProgress says how far it is"
