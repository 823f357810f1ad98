"""Explanations as the wire shows them."""

from __future__ import annotations

from persys_core.model.event import capped
from persys_core.placement.explain import Candidate, Explanation, NodeRejection, ReasonTally
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.times import timestamp

__all__ = ["explanation"]


def explanation(found: Explanation) -> pb.Explanation:
    """Why a workload is where it is, or nowhere."""
    return pb.Explanation(
        verdict=str(found.verdict),
        summary=capped(found.summary),
        node_id=found.node_id,
        score=found.score,
        score_parts=found.score_parts,
        since=timestamp(found.since),
        next_try_at=timestamp(found.next_try_at),
        next_step=found.next_step,
        nodes_considered=found.nodes_considered,
        nodes_feasible=found.nodes_feasible,
        reasons=map(_tally, found.reasons),
        candidates=map(_candidate, found.candidates),
        store_revision=found.store_revision,
    )


def _tally(tally: ReasonTally) -> pb.ReasonCount:
    return pb.ReasonCount(
        code=str(tally.code),
        nodes=tally.nodes,
        message=tally.detail,
        unit=tally.unit,
        asked=tally.asked,
        free_max=tally.free_max,
        examples=map(_rejection, tally.examples),
    )


def _rejection(rejection: NodeRejection) -> pb.NodeRejection:
    return pb.NodeRejection(
        node_id=rejection.node_id,
        code=str(rejection.code),
        asked=rejection.asked,
        free=rejection.free,
        unit=rejection.unit,
        detail=rejection.detail,
    )


def _candidate(candidate: Candidate) -> pb.Candidate:
    return pb.Candidate(node_id=candidate.node_id, score=candidate.score, parts=candidate.parts)
