"""`persysctl node taint|untaint|label`: marks on a node that placement looks at.

Decided here: how a mark is written. ``KEY[=VALUE][:EFFECT]`` is a taint, as in a toleration;
``KEY=VALUE`` sets a label and ``KEY-`` takes it away.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs
from persysctl.commands.node_answers import accepted, show_answer, told
from persysctl.context import Context
from persysctl.errors import RefusedError, UsageError
from persysctl.exit_codes import ExitCode
from persysctl.manifest.placement import TAINT_EFFECTS
from persysctl.output.structured import plain
from persysctl.suggest import did_you_mean

__all__ = ["add"]

_TAINT = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:]*))?(:(?P<effect>.*))?\Z")
_EFFECTS = {effect.lower(): effect for effect in TAINT_EFFECTS}


def add(below: Verbs) -> None:
    """Add the three verbs."""
    taint = below.add(
        "taint",
        "Keep work off a node that does not tolerate the taint.",
        usage="ID KEY[=VALUE][:EFFECT]",
        run=_taint,
        examples=["node taint n1 dedicated=db", "node taint n1 flaky:NoExecute"],
    )
    taint.add_argument("node_id", metavar="ID", help="the node")
    taint.add_argument(
        "taint",
        metavar="KEY[=VALUE][:EFFECT]",
        help=f"the effect is one of {', '.join(TAINT_EFFECTS)} (NoSchedule)",
    )
    untaint = below.add(
        "untaint",
        "Take taints away from a node.",
        usage="ID KEY[:EFFECT]",
        run=_untaint,
        examples=["node untaint n1 dedicated", "node untaint n1 flaky:NoExecute"],
    )
    untaint.add_argument("node_id", metavar="ID", help="the node")
    untaint.add_argument(
        "taint", metavar="KEY[:EFFECT]", help="without an effect, every taint of the key goes"
    )
    label = below.add(
        "label",
        "Set labels of a node, or take them away.",
        usage="ID KEY=VALUE… KEY-…",
        run=_label,
        examples=["node label n1 rack=r2 disk=ssd", "node label n1 rack-"],
    )
    label.add_argument("node_id", metavar="ID", help="the node")
    label.add_argument(
        "labels", nargs="+", metavar="KEY=VALUE|KEY-", help="a label to set, or to take away"
    )


async def _taint(context: Context, args: argparse.Namespace) -> ExitCode:
    taint = _parsed(args.taint)
    response = await context.client.operations.taint(args.node_id, taint)
    return show_answer(context, args.node_id, response)


async def _untaint(context: Context, args: argparse.Namespace) -> ExitCode:
    taint = _parsed(args.taint)
    if "=" in args.taint:
        raise UsageError(f"a taint is taken away by its key; write {taint.key!r}, without a value")
    response = await context.client.operations.untaint(args.node_id, taint.key, taint.effect)
    return show_answer(context, args.node_id, response)


def _parsed(text: str) -> pb.NodeTaint:
    match = _TAINT.match(text)
    if match is None:
        raise UsageError(f"{text!r} is no taint; write KEY[=VALUE][:EFFECT]")
    given = match["effect"]
    effect = _EFFECTS.get((given or "").lower(), "")
    if given is not None and not effect:
        known = ", ".join(TAINT_EFFECTS)
        hint = did_you_mean(given, TAINT_EFFECTS)
        raise UsageError(f"{given!r} is no effect of a taint; write one of {known}{hint}")
    return pb.NodeTaint(key=match["key"], value=match["value"] or "", effect=effect)


async def _label(context: Context, args: argparse.Namespace) -> ExitCode:
    changes = _label_changes(args.labels)
    items: list[dict[str, object]] = []
    code = ExitCode.DONE
    for key, value in changes.items():
        item = await _change(context, args.node_id, key, value)
        items.append(item)
        if "refused" in item:
            code = ExitCode.FAILED
    if context.output.is_structured:
        context.output.show({"nodeId": args.node_id, "items": items}, list)
    return code


def _label_changes(texts: Sequence[str]) -> dict[str, str | None]:
    """Key to value, ``None`` to take it away; nothing is sent if one is written wrong."""
    changes: dict[str, str | None] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals and not key.endswith("-"):
            raise UsageError(f"{text!r} is no label; write KEY=VALUE to set it, KEY- to remove it")
        key = key if equals else key[:-1]
        if not key:
            raise UsageError(f"{text!r} has no key; write KEY=VALUE to set a label, KEY- to remove")
        if key in changes:
            raise UsageError(f"label {key!r} is written twice; give it once")
        changes[key] = value if equals else None
    return changes


async def _change(context: Context, node_id: str, key: str, value: str | None) -> dict[str, object]:
    """Change one label; a refusal of one does not keep the others back."""
    operations = context.client.operations
    response: pb.SetNodeLabelResponse | pb.DeleteNodeLabelResponse
    try:
        if value is None:
            response = await operations.delete_label(node_id, key)
        else:
            response = await operations.set_label(node_id, key, value)
        accepted(node_id, response)
    except RefusedError as error:
        if error.not_found:
            raise
        context.output.terminal.note(f"{node_id}: label {key} not changed: {error}")
        return {"key": key, "refused": str(error)}
    context.output.say(told(node_id, response))
    return {"key": key, **plain(response)}
