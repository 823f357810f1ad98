"""What the container of a workload is called.

Decided here: ``workload`` calls it as the workload, as agents in the field do (the Engine takes no
name of one letter, so those get ``_``); ``node`` puts the node's id before that, for hosts where
several agents share one daemon. Names of ``node`` differ for any two pairs of node and workload: a
node's id without dots ends at the first dot, and where that does not hold, or the name would be
long, a hash of both stands behind two dots, which no other name has there.
"""

from __future__ import annotations

import hashlib

from persys_agent.settings.parse import ContainerNames
from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["LONGEST", "container_name"]

LONGEST = 200
"""Characters of a name with a node's id in it; a workload's id alone may have some more."""
_DIGEST_CHARACTERS = 32


def container_name(style: ContainerNames, node_id: NodeId, workload_id: WorkloadId) -> str:
    """The name in that style; both ids have to be valid ones."""
    match style:
        case ContainerNames.WORKLOAD:
            return workload_id if len(workload_id) > 1 else f"{workload_id}_"
        case ContainerNames.NODE:
            plain = f"{node_id}.{workload_id}"
            is_plain = "." not in node_id and len(plain) <= LONGEST
            return plain if is_plain else _hashed(node_id, workload_id)


def _hashed(node_id: NodeId, workload_id: WorkloadId) -> str:
    digest = hashlib.sha256(f"{node_id}\0{workload_id}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
    readable = f"{node_id}-{workload_id}".replace(".", "-")
    return f"{readable[: LONGEST - _DIGEST_CHARACTERS - 2]}..{digest}"
