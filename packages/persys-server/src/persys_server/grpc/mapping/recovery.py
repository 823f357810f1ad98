"""Orders and answers about recovery.

Decided here: the words for people, which say what is so now and what is left to do.
"""

from __future__ import annotations

from persys_core.control.answers import ImportAnswer
from persys_core.control.requests import AcknowledgeEmpty, ImportFromAgents
from persys_core.model.event import capped
from persys_core.model.states import OperatingMode
from persys_core.recovery.plan import Decision, ImportItem
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import Fields
from persys_server.grpc.mapping.limits import MAX_IMPORT_NODES

__all__ = ["acknowledged_response", "acknowledgement", "import_order", "import_response"]

_NAMED = 5


def import_order(message: pb.ImportFromAgentsRequest, actor: str) -> ImportFromAgents:
    """An import; raises ``InvalidInputError`` like all of these."""
    fields = Fields()
    fields.count("node_ids", len(message.node_ids), MAX_IMPORT_NODES)
    nodes = tuple(
        fields.existing_id(f"node_ids[{index}]", node_id)
        for index, node_id in enumerate(message.node_ids[:MAX_IMPORT_NODES])
    )
    reason = fields.reason("reason", message.reason)
    fields.finish()
    return ImportFromAgents(nodes, message.dry_run, reason, actor)


def acknowledgement(message: pb.AcknowledgeEmptyRequest, actor: str) -> AcknowledgeEmpty:
    """An acknowledgement, which needs a reason."""
    fields = Fields()
    reason = fields.reason("reason", message.reason, required=True)
    fields.finish()
    return AcknowledgeEmpty(reason.strip(), actor)


def import_response(answer: ImportAnswer) -> pb.ImportFromAgentsResponse:
    """The answer to ImportFromAgents."""
    return pb.ImportFromAgentsResponse(
        accepted=True,
        message=capped(_import_words(answer)),
        dry_run=answer.dry_run,
        workloads=map(_imported, answer.items),
        nodes_listed=len(answer.listed),
        unreachable_node_ids=sorted(answer.silent),
        mode=answer.mode.value,
    )


def acknowledged_response(mode: OperatingMode) -> pb.AcknowledgeEmptyResponse:
    """The answer to AcknowledgeEmpty."""
    return pb.AcknowledgeEmptyResponse(
        accepted=True,
        message="the store is taken as it is; what agents run besides is left alone and shown as"
        " drift, and can still be imported",
        mode=mode.value,
    )


def _imported(item: ImportItem) -> pb.ImportedWorkload:
    kind = item.report.type
    if kind is None and item.recorded.workload is not None:
        kind = item.recorded.workload.spec.type
    return pb.ImportedWorkload(
        workload_id=item.workload_id,
        node_id=item.node_id,
        type=kind.value if kind else "",
        revision_id=item.report.revision_id,
        decision=item.decision.value,
        detail=item.detail,
    )


def _import_words(answer: ImportAnswer) -> str:
    count = sum(item.decision is Decision.IMPORT for item in answer.items)
    conflicts = sum(item.decision is Decision.CONFLICT for item in answer.items)
    nodes = "1 node" if len(answer.listed) == 1 else f"{len(answer.listed)} nodes"
    done = "would be imported" if answer.dry_run else "imported"
    parts = [f"{count} {'workload' if count == 1 else 'workloads'} of {nodes} {done}"]
    if conflicts:
        parts.append(f"{conflicts} in conflict, which are left as they are")
    if answer.silent:
        parts.append(f"no list from {_reasons(answer)}")
    if answer.mode is OperatingMode.RECOVERY and not answer.dry_run:
        parts.append(
            "recovery goes on until every known node gave a list: import again, or acknowledge"
            " the store as it is"
        )
    return "; ".join(parts)


def _reasons(answer: ImportAnswer) -> str:
    told = [f"{node_id} ({why})" for node_id, why in sorted(answer.silent.items())]
    more = f" and {len(told) - _NAMED} more" if len(told) > _NAMED else ""
    return ", ".join(told[:_NAMED]) + more
