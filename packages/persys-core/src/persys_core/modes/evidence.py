"""Is this store the one that we know? From what is known and what was found.

Decided here: which finding means that data was lost. What is known comes from this process's
memory, or from the file that a replica keeps beside itself (decisions §4). Pure.
"""

from __future__ import annotations

from attrs import frozen

from persys_core.model.cluster import ClusterMarker, MarkerState
from persys_core.model.ids import NodeId, StoreRevision
from persys_core.modes.machine import ModeEvent

__all__ = ["Found", "Known", "is_new_cluster", "judge_store", "judge_work"]


@frozen
class Known:
    """The cluster as it was last seen.

    ``backend_id`` is the store's own identity (etcd's cluster id), empty where it has none.
    ``nodes``: who was a member, so that an import knows whom it has not heard of.
    ``epoch_base``: the life of the marker (``ClusterMarker``), 0 where it was not kept. Revisions
    alone do not tell an older store: a new life may have begun in one that counts from 1.
    """

    cluster_id: str
    backend_id: str = ""
    revision: StoreRevision = 0
    nodes: tuple[NodeId, ...] = ()
    epoch_base: int = 0


@frozen
class Found:
    """The store as it stands now; ``marker`` is None where it has none."""

    marker: ClusterMarker | None
    backend_id: str = ""
    revision: StoreRevision = 0


def judge_store(known: Known | None, found: Found) -> tuple[ModeEvent, str]:
    """The event that the finding is, and what was found, for people.

    ``known`` is None in a replica that never saw this cluster.
    """
    if known is None:
        return ModeEvent.DATA_WHOLE, ""
    if found.marker is None:
        return ModeEvent.MARKER_MISSING, f"expected cluster {known.cluster_id}"
    if found.marker.cluster_id != known.cluster_id:
        return (
            ModeEvent.CLUSTER_CHANGED,
            f"expected cluster {known.cluster_id}, found {found.marker.cluster_id}",
        )
    if found.marker.epoch_base < known.epoch_base:
        return (
            ModeEvent.REVISION_REWOUND,
            f"the marker's epoch base {known.epoch_base} was seen, now it is"
            f" {found.marker.epoch_base}: this is a store from before an import or an"
            " acknowledgement",
        )
    if found.revision < known.revision:
        return (
            ModeEvent.REVISION_REWOUND,
            f"revision {known.revision} was seen, now it is {found.revision}",
        )
    if known.backend_id and found.backend_id and known.backend_id != found.backend_id:
        return (
            ModeEvent.CLUSTER_CHANGED,
            f"expected store {known.backend_id}, found {found.backend_id}",
        )
    return ModeEvent.DATA_WHOLE, ""


def is_new_cluster(known: Known | None, found: Found) -> bool:
    """Whether the marker is to be written: nobody ever saw a cluster in this store.

    Records without a marker are another scheduler's, which is taken over and not lost either.
    """
    return known is None and found.marker is None


def judge_work(marker: ClusterMarker | None, reported_workloads: int) -> ModeEvent | None:
    """Whether agents' reports contradict a store that says that nothing was ever placed."""
    if marker is None or marker.state is not MarkerState.FRESH or not reported_workloads:
        return None
    return ModeEvent.WORK_WHILE_FRESH
