"""The outcome of a workload's last reconcile look as JSON: a copy for people, never read back.

It has the reference's names. Redis keeps it; where Redis cannot take it, etcd does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from persys_core.model.event import capped
from persys_core.model.ids import WorkloadId
from persys_core.model.secrets import scrubbed

__all__ = ["RECONCILIATION_FOLDER", "reconciliation_json"]

RECONCILIATION_FOLDER = "/reconciliation/"
"""Where it stands in a key-value store, by the workload's id."""


def reconciliation_json(workload_id: WorkloadId, facts: Mapping[str, str]) -> bytes:
    """The record of the last attempt; ``facts`` as ``Telemetry.record_reconciliation`` has them."""
    reason = facts.get("reason", "").encode(errors="replace").decode()
    record = {
        "workloadId": workload_id,
        "action": facts.get("action", ""),
        "success": facts.get("success", "") == "true",
        "reason": capped(scrubbed(reason, ())),
        "attemptedAt": facts.get("attemptedAt", ""),
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True).encode()
