"""Telemetry as JSON, in the shapes that the reference's readers and its meter expect.

Decided here: names and formats. Keys of ours lie under ``persys:``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from persys_adapters.redis.event_json import rfc3339
from persys_core.model.event import capped
from persys_core.model.secrets import masked, scrubbed
from persys_core.model.usage import NodeUsage, WorkloadUsage

__all__ = [
    "meter_payload",
    "node_usage_json",
    "reconcile_status_json",
    "workload_usage_json",
]

_OWN = frozenset({"action", "success", "reason", "attemptedAt", "retryCount"})
_MAX_FACTS = 64


def reconcile_status_json(facts: Mapping[str, str]) -> bytes:
    """Every fact, and the last attempt under the names of the reference."""
    others = {name: text for name, text in facts.items() if name not in _OWN}
    return _dumped(
        {
            **dict(sorted(masked(others).items())[:_MAX_FACTS]),
            "lastReconciliation": facts.get("attemptedAt", ""),
            "lastReconciliationAction": facts.get("action", ""),
            "lastReconciliationSuccess": _is_success(facts),
            "reconciliationRetryCount": _count(facts.get("retryCount", "")),
        }
    )


def workload_usage_json(usage: WorkloadUsage) -> bytes:
    """The latest utilisation of a workload; as the meter has it, and the node."""
    return _dumped({**_snapshot(usage), "nodeId": usage.node_id})


def node_usage_json(usage: NodeUsage) -> bytes:
    """The latest utilisation of a node."""
    value = {
        "nodeId": usage.node_id,
        "used": dict(usage.used.amounts),
        "reportedAt": rfc3339(usage.reported_at),
    }
    return _dumped(value)


def meter_payload(event_id: str, usage: WorkloadUsage) -> bytes:
    """What the meter reads of one sample. The revision is not known to whoever measures."""
    return _dumped(
        {
            "event_id": event_id,
            "node_id": usage.node_id,
            "workload_id": usage.workload_id,
            "reported_at": rfc3339(usage.collected_at),
            "usage": _snapshot(usage),
        }
    )


def _snapshot(usage: WorkloadUsage) -> dict[str, object]:
    return {
        "workloadId": usage.workload_id,
        "type": usage.type,
        "cpuPercent": usage.cpu_percent,
        "memoryBytes": usage.memory_bytes,
        "diskReadBytes": usage.disk_read_bytes,
        "diskWriteBytes": usage.disk_write_bytes,
        "netRxBytes": usage.net_rx_bytes,
        "netTxBytes": usage.net_tx_bytes,
        "collectedAt": rfc3339(usage.collected_at),
        "source": usage.source,
    }


def _is_success(facts: Mapping[str, str]) -> bool:
    return facts.get("success", "") == "true"


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _dumped(value: Mapping[str, object]) -> bytes:
    safe = {name: _clean(part) if isinstance(part, str) else part for name, part in value.items()}
    return json.dumps(safe, separators=(",", ":"), ensure_ascii=True).encode()


def _clean(text: str) -> str:
    return capped(scrubbed(text.encode(errors="replace").decode(), ()))
