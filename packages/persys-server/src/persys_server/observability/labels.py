"""The closed sets that label values come from, so that no request can add series without end.

Decided here: which values a label may have; everything else becomes ``other`` (field report M02).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from persys_core.model.states import DesiredState, NodeStatus, WorkloadStatus
from persys_core.ports.cluster_store import Kind
from persys_proto.control.v1 import control_pb2

__all__ = [
    "AGENT_RPCS",
    "CODES",
    "DESIRED_STATES",
    "METHODS",
    "NODE_STATUSES",
    "OTHER",
    "WORKLOAD_STATUSES",
    "WRITE_CATEGORIES",
    "OpenLabel",
    "agent_code",
    "closed",
    "write_category",
]

OTHER = "other"

_SERVICE = control_pb2.DESCRIPTOR.services_by_name["AgentControl"]
METHODS = frozenset(f"/{_SERVICE.full_name}/{method.name}" for method in _SERVICE.methods)
CODES = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound",
    "AlreadyExists", "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted",
    "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
"""Status codes under the names that Go gives them, by number."""
AGENT_RPCS = frozenset(
    {"ApplyWorkload", "DeleteWorkload", "GetWorkloadStatus", "HealthCheck", "ListWorkloads",
     "ListActions"}
)  # fmt: skip
NODE_STATUSES = frozenset(
    {"ready", "active", "notready", "unknown"} | set(map(str.lower, NodeStatus))
)
WORKLOAD_STATUSES = frozenset(map(str.lower, WorkloadStatus))
DESIRED_STATES = frozenset({*map(str.lower, DesiredState), "unknown"})
WRITE_CATEGORIES = frozenset(
    {"spec", "status", "retry", "assignment", "reconciliation", "event", "event_dropped"}
    | {str(kind) for kind in Kind if kind is not Kind.WORKLOAD}
)

_AGENT_RESULTS = {
    "answered": "OK",
    "refused": "FailedPrecondition",
    "not_found": "NotFound",
    "unreachable": "Unavailable",
}


def closed(value: str, known: Iterable[str]) -> str:
    """``value`` if it is known, else ``other``."""
    return value if value in known else OTHER


def write_category(kind: str) -> str:
    """The category under which writes of a kind of record are counted."""
    return closed("spec" if kind == Kind.WORKLOAD else kind, WRITE_CATEGORIES)


def agent_code(result: str) -> str:
    """The status code that stands for the result of an agent call."""
    return closed(_AGENT_RESULTS.get(result.lower(), result), CODES)


class OpenLabel:
    """A label whose words the core chooses: short plain words, and only so many of them.

    The core's own enums are the closed sets; this bound holds even where a caller forgets that.
    """

    _WORD = re.compile(r"[A-Za-z][A-Za-z_.]{0,47}\Z")

    def __init__(self, at_most: int = 24) -> None:
        self._at_most = at_most
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._seen:
            return value
        if len(self._seen) >= self._at_most or not self._WORD.match(value):
            return OTHER
        self._seen.add(value)
        return value
