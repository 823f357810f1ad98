"""What all verbs that change a node share: a refusal is an error, else a line and the answer."""

from __future__ import annotations

from typing import TypeAlias

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain

__all__ = ["NodeAnswer", "accepted", "show_answer", "told"]

NodeAnswer: TypeAlias = (
    pb.CordonNodeResponse
    | pb.UncordonNodeResponse
    | pb.DrainNodeResponse
    | pb.UndrainNodeResponse
    | pb.TaintNodeResponse
    | pb.UntaintNodeResponse
    | pb.SetNodeLabelResponse
    | pb.DeleteNodeLabelResponse
    | pb.RemoveNodeResponse
    | pb.FenceNodeResponse
)


def accepted(node_id: str, response: NodeAnswer) -> None:
    """Raise RefusedError unless the scheduler took the order."""
    if not response.accepted:
        raise RefusedError(response.message or f"{node_id}: refused without a reason")


def told(node_id: str, response: NodeAnswer) -> str:
    """The scheduler's words about a node."""
    return f"{node_id}: {response.message or 'is changed'}"


def show_answer(
    context: Context, node_id: str, response: NodeAnswer, done: str | None = None
) -> ExitCode:
    """Say what is so now: in our words (``done``) where we have some, else in the scheduler's."""
    accepted(node_id, response)
    context.output.say(f"{node_id} {done}" if done else told(node_id, response))
    if context.output.is_structured:
        context.output.show(plain(response), list)
    return ExitCode.DONE
