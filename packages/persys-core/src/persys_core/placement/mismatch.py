"""Whether a workload is where its own wishes would not let it be placed any more.

Selectors and exclusions are looked at when a node is chosen; a change of them, or of the node's
labels, moves nothing that runs. Decided here: how that is said, so that nobody waits for a move.
Pure.
"""

from __future__ import annotations

from persys_core.model.constraints import parse_constraints
from persys_core.model.node import Node
from persys_core.model.spec import WorkloadSpec

__all__ = ["HOW_TO_MOVE", "mismatch"]

HOW_TO_MOVE = "delete and apply it, or drain the node, to move it"


def mismatch(node: Node, spec: WorkloadSpec) -> str:
    """``stays on n1, which no longer matches selector disk=ssd``; empty where ``node`` matches."""
    wishes = parse_constraints(spec.metadata)
    lacking = [
        f"{key}={value}"
        for key, value in sorted(wishes.node_selector.items())
        if node.labels.get(key) != value
    ]
    reasons = [f"no longer matches selector {','.join(lacking)}"] if lacking else []
    if node.id in wishes.exclude_nodes:
        reasons.append("is one of the nodes that it excludes")
    return f"stays on {node.id}, which {' and '.join(reasons)}" if reasons else ""
