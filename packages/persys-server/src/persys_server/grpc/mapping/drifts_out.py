"""Drifts as the wire shows them."""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.control.answers import Freshness
from persys_core.model.drift import DriftRecord
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.times import timestamp

__all__ = ["drift_list"]


def drift_list(records: Iterable[DriftRecord], fresh: Freshness) -> pb.ListDriftsResponse:
    """The answer to ListDrifts."""
    return pb.ListDriftsResponse(
        drifts=map(_drift_view, records),
        store_revision=fresh.revision,
        stale=fresh.stale,
        age_seconds=fresh.age.total_seconds(),
    )


def _drift_view(record: DriftRecord) -> pb.DriftView:
    return pb.DriftView(
        node_id=record.node_id,
        workload_id=record.workload_id,
        type=str(record.drift_type),
        detected_at=timestamp(record.detected_at),
        scheduler_status=record.scheduler_status,
        agent_status=record.agent_status,
        action=record.action,
        note=record.last_error,
    )
