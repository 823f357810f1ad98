"""What operators ask of nodes: drains, taints and labels, checked field by field.

Decided here: how taints and labels may be written, and what an empty effect means. A key that is
only taken away may be written in any way, since it may have been set before our rules.
"""

from __future__ import annotations

import re
from datetime import timedelta

from persys_core.control.requests import (
    DrainNode,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
    RemoveNode,
)
from persys_core.model.states import TaintEffect
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_DRAIN_SECONDS

__all__ = [
    "delete_label",
    "drain_node",
    "drained_node",
    "intent_change",
    "remove_node",
    "set_label",
    "taint_node",
    "untaint_node",
]

_EFFECTS = {str(effect).lower(): effect for effect in TaintEffect}
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?\Z")
_TAINT_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)?\Z")
_MAX_KEY = 253
_MAX_VALUE = 253


def intent_change(
    message: pb.CordonNodeRequest | pb.UncordonNodeRequest | pb.UndrainNodeRequest, actor: str
) -> NodeIntentChange:
    """What an operator wants of a node; raises ``InvalidInputError`` like all of these."""
    fields = Fields()
    change = _change(fields, message.node_id, actor, message.reason)
    fields.finish()
    return change


def drain_node(message: pb.DrainNodeRequest, actor: str) -> DrainNode:
    """A drain; no deadline waits for as long as it takes."""
    fields = Fields()
    change = _change(fields, message.node_id, actor, message.reason)
    seconds = fields.amount(
        "deadline_seconds", message.deadline_seconds, MAX_DRAIN_SECONDS, "seconds"
    )
    if message.force and not seconds:
        fields.add(
            "force", "stops at the deadline what has not left; give deadline_seconds as well"
        )
    fields.finish()
    return DrainNode(change, timedelta(seconds=seconds) if seconds else None, message.force)


def drained_node(message: pb.GetDrainProgressRequest) -> str:
    """Whose drain is asked about."""
    fields = Fields()
    node_id = fields.existing_id("node_id", message.node_id)
    fields.finish()
    return node_id


def remove_node(message: pb.RemoveNodeRequest, actor: str) -> RemoveNode:
    """A node to forget."""
    fields = Fields()
    change = _change(fields, message.node_id, actor, message.reason)
    fields.finish()
    return RemoveNode(change, message.force)


def taint_node(message: pb.TaintNodeRequest, actor: str) -> NodeTaintChange:
    """A taint to set; without an effect it is NoSchedule."""
    fields = Fields()
    place, taint = fields.inside("taint"), message.taint
    request = NodeTaintChange(
        _change(fields, message.node_id, actor),
        key=_new_key(place, taint.key),
        value=_taint_value(place, taint.value),
        effect=place.word("effect", taint.effect, _EFFECTS, TaintEffect.NO_SCHEDULE),
    )
    fields.finish()
    return request


def untaint_node(message: pb.UntaintNodeRequest, actor: str) -> NodeTaintChange:
    """Taints to take away; without an effect all of the key.

    Clients of older schedulers leave the effect empty for NoSchedule, which is among them.
    """
    fields = Fields()
    request = NodeTaintChange(
        _change(fields, message.node_id, actor),
        key=fields.text("key", message.key, at_most=_MAX_KEY, required=True),
        effect=fields.word("effect", message.effect, dict[str, TaintEffect | None](_EFFECTS), None),
    )
    fields.finish()
    return request


def set_label(message: pb.SetNodeLabelRequest, actor: str) -> NodeLabelChange:
    """An operator's label; an empty value is a value."""
    fields = Fields()
    request = NodeLabelChange(
        _change(fields, message.node_id, actor),
        key=_new_key(fields, message.key),
        value=fields.text("value", message.value, at_most=_MAX_VALUE),
    )
    if message.value != message.value.strip():
        fields.add("value", f"{quoted(message.value)} begins or ends with a blank")
    fields.finish()
    return request


def delete_label(message: pb.DeleteNodeLabelRequest, actor: str) -> NodeLabelChange:
    """An operator's label to take away."""
    fields = Fields()
    request = NodeLabelChange(
        _change(fields, message.node_id, actor),
        key=fields.text("key", message.key, at_most=_MAX_KEY, required=True),
    )
    fields.finish()
    return request


def _change(fields: Fields, node_id: str, actor: str, reason: str = "") -> NodeIntentChange:
    return NodeIntentChange(
        node_id=fields.existing_id("node_id", node_id),
        reason=fields.reason("reason", reason),
        actor=actor,
    )


def _new_key(fields: Fields, key: str) -> str:
    if not key.strip():
        fields.add("key", "key is required")
    elif not _KEY.match(key):
        fields.add(
            "key",
            f"{quoted(key)} is not valid; accepted are 1 to {_MAX_KEY} characters of"
            " A-Z a-z 0-9 . _ / - that begin and end with a letter or a digit",
        )
    return key


def _taint_value(fields: Fields, value: str) -> str:
    """Tolerations write taints as ``key=value:Effect``, so a value holds none of the marks."""
    if not _TAINT_VALUE.match(value):
        fields.add(
            "value",
            f"{quoted(value)} is not valid; accepted are up to {_MAX_VALUE} characters of"
            " A-Z a-z 0-9 . _ - that begin and end with a letter or a digit",
        )
    return value
