"""`persysctl describe`: everything about one workload or node."""

from __future__ import annotations

import argparse

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.arguments import Verbs, kind_and_ids, one_id
from persysctl.context import Context
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.output.description import node_description, workload_description
from persysctl.output.structured import listing, plain

__all__ = ["add"]

_EVENTS = 10
_EXAMPLES = 3


def add(verbs: Verbs) -> None:
    """Add the verb."""
    parser = verbs.add(
        "describe",
        "Show everything about one workload or node, with recent events.",
        usage="workload|node ID",
        run=_run,
        examples=["describe workload web", "describe node n1"],
    )
    parser.add_argument("target", nargs="+", metavar="KIND ID", help="workload ID or node ID")


async def _run(context: Context, args: argparse.Namespace) -> ExitCode:
    kind, ids = kind_and_ids(args.target, ("workload", "node"))
    if kind == "node":
        return await _node(context, one_id(kind, ids))
    return await _workload(context, one_id(kind, ids))


async def _workload(context: Context, workload_id: str) -> ExitCode:
    response = await context.client.workload(workload_id)
    context.warn_if_stale(response)
    view = response.workload
    explanation = await _explanation(context, view)
    events = await _events(context, pb.ListEventsRequest(workload_id=workload_id, limit=_EVENTS))
    volumes = await _volumes(context, workload_id)
    value = plain(view) | {
        "events": listing(events, "events")["items"],
        "volumes": listing(volumes, "volumes")["items"],
    }
    if explanation is not None:
        value["explanation"] = plain(explanation)
    context.output.show(
        value,
        lambda: workload_description(
            view, explanation, volumes.volumes, events.events, context.now()
        ),
    )
    return ExitCode.DONE


async def _explanation(context: Context, view: pb.WorkloadView) -> pb.Explanation | None:
    """The fullest explanation to be had; an older scheduler has none."""
    try:
        return (await context.client.explain(view.workload_id, _EXAMPLES)).explanation
    except RefusedError as error:
        if view.HasField("explanation"):
            return view.explanation
        context.output.terminal.note(f"no explanation: {error}")
        return None


async def _volumes(context: Context, workload_id: str) -> pb.ListVolumesResponse:
    """Its managed volumes; an older scheduler keeps none."""
    try:
        return await context.client.volumes.list(workload_id=workload_id)
    except RefusedError as error:
        context.output.terminal.note(f"no volumes: {error}")
        return pb.ListVolumesResponse()


async def _node(context: Context, node_id: str) -> ExitCode:
    response = await context.client.node(node_id)
    context.warn_if_stale(response)
    view = response.node
    workloads = await context.client.workloads(node_id=node_id, status="")
    events = await _events(context, pb.ListEventsRequest(node_id=node_id, limit=_EVENTS))
    value = plain(view) | {
        "events": listing(events, "events")["items"],
        "workloads": listing(workloads, "workloads")["items"],
    }
    context.output.show(
        value,
        lambda: node_description(view, workloads.workloads, events.events, context.now()),
    )
    return ExitCode.DONE


async def _events(context: Context, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
    """Recent events; a description without them is better than none."""
    try:
        return await context.client.events(request)
    except RefusedError as error:
        context.output.terminal.note(f"no events: {error}")
        return pb.ListEventsResponse()
