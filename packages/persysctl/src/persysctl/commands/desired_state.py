"""What `start` and `stop` share: a wish for the state alone; spec and revision stay."""

from __future__ import annotations

import argparse

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import kind_and_ids, one_id
from persysctl.commands.seeing_through import see_through
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.structured import plain
from persysctl.wait import Goal

__all__ = ["set_desired_state"]


async def set_desired_state(
    context: Context, args: argparse.Namespace, desired_state: str
) -> ExitCode:
    """Wish for ``desired_state`` of the workload in ``args``, and wait if asked to."""
    workload_id = one_id(*kind_and_ids(args.target, ("workload",)))
    request = pb.ApplyWorkloadRequest(workload_id=workload_id, desired_state=desired_state)
    response = await context.client.apply(request)
    if not response.success:
        raise RefusedError(response.error_message or f"{workload_id}: refused without a reason")
    is_news = response.outcome != "Unchanged"
    context.output.say(
        f"{workload_id}: desired state is {'now' if is_news else 'already'} {desired_state}"
    )
    code, value = ExitCode.DONE, {"workloadId": workload_id, **plain(response)}
    if args.wait:
        code, outcomes = await see_through(context, {workload_id: Goal(desired_state)})
        view = outcomes[workload_id].view
        if view is not None:
            value["workload"] = plain(view)
    if context.output.is_structured:
        context.output.show(value, list)
    return code
