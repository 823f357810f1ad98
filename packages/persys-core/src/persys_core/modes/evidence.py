"""Is this store the one that we know? From what is known and what was found.

Decided here: which finding means that data was lost. What is known comes from this process's
memory, or from the file that a replica keeps beside itself (decisions §4). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from persys_core.model.cluster import ClusterMarker, MarkerState
from persys_core.model.ids import NodeId, StoreRevision
from persys_core.modes.machine import ModeEvent
from persys_core.ports.cluster_store import Key

__all__ = ["Found", "Known", "Witness", "is_new_cluster", "judge_store", "judge_work", "rewound_to"]


@frozen
class Witness:
    """A record and the revision at which it was seen. In one history it never has a lower one."""

    key: Key
    revision: StoreRevision


@frozen
class Known:
    """The cluster as it was last seen.

    ``backend_id`` is the store's own identity (etcd's cluster id), empty where it has none.
    ``nodes``: who was a member, so that an import knows whom it has not heard of.
    ``epoch_base``: the life of the marker (``ClusterMarker``), 0 where it was not kept. Revisions
    alone do not tell an older store: a new life may have begun in one that counts from 1.
    ``rewound_to``: how far the store went back at least, 0 where it did not. It stays until the
    data is proven to be back or an operator takes the store: a store that went back is written to,
    if only by leaders, and soon counts as far as it did.
    ``witnesses``: the newest records that were seen.
    """

    cluster_id: str
    backend_id: str = ""
    revision: StoreRevision = 0
    nodes: tuple[NodeId, ...] = ()
    epoch_base: int = 0
    rewound_to: StoreRevision = 0
    witnesses: tuple[Witness, ...] = ()


@frozen
class Found:
    """The store as it stands now; ``marker`` is None where it has none.

    ``witnesses``: at which revisions those that are there stand now.
    """

    marker: ClusterMarker | None
    backend_id: str = ""
    revision: StoreRevision = 0
    witnesses: Mapping[Key, StoreRevision] = field(factory=dict)


def judge_store(known: Known | None, found: Found) -> tuple[ModeEvent, str]:
    """The event that the finding is, and what was found, for people.

    ``known`` is None in a replica that never saw this cluster.
    """
    whole = (ModeEvent.DATA_WHOLE, "")
    if known is None:
        return whole
    if found.marker is None:
        return ModeEvent.MARKER_MISSING, f"expected cluster {known.cluster_id}"
    text = _of_another_cluster(known, found.marker)
    if text:
        return ModeEvent.CLUSTER_CHANGED, text
    if known.rewound_to and found.marker.epoch_base > known.epoch_base:
        # An operator took this store, at another replica.
        return whole
    text = _of_the_past(known, found, found.marker)
    if text:
        return ModeEvent.REVISION_REWOUND, text
    if known.backend_id and found.backend_id and known.backend_id != found.backend_id:
        text = f"expected store {known.backend_id}, found {found.backend_id}"
        return ModeEvent.CLUSTER_CHANGED, text
    return whole


def _of_another_cluster(known: Known, marker: ClusterMarker) -> str:
    if marker.cluster_id == known.cluster_id:
        return ""
    return f"expected cluster {known.cluster_id}, found {marker.cluster_id}"


def _of_the_past(known: Known, found: Found, marker: ClusterMarker) -> str:
    """What shows that the store went back; empty where nothing does."""
    if marker.epoch_base < known.epoch_base:
        return (
            f"the marker's epoch base {known.epoch_base} was seen, now it is"
            f" {marker.epoch_base}: this is a store from before an import or an acknowledgement"
        )
    if found.revision < known.revision:
        return f"revision {known.revision} was seen, now it is {found.revision}"
    if known.rewound_to and not _is_back(known, found):
        return (
            f"revision {known.revision} was seen, then the store was at {known.rewound_to}, and"
            " nothing shows that what lay between is there again"
        )
    older = _older(known, found)
    if older:
        key, seen = older[0].key, older[0].revision
        return f"{key} was seen at revision {seen}, now it is at {found.witnesses[key]}"
    return ""


def rewound_to(known: Known, found: Found) -> StoreRevision:
    """The highest revision that a store which is judged to be rewound may have gone back to: of
    what was seen later nothing can be in it but what is proven to be there again. 0 for a former
    life: its marker says so however far it counts, and revisions of two lives say nothing."""
    if found.marker is not None and found.marker.epoch_base < known.epoch_base:
        return 0
    missing = (each.revision - 1 for each in _older(known, found))
    return min((found.revision, *missing))


def _older(known: Known, found: Found) -> tuple[Witness, ...]:
    """The records that stand at a lower revision than they were seen at; one that is gone proves
    nothing, since it may have been removed."""
    return tuple(
        each
        for each in known.witnesses
        if found.witnesses.get(each.key, each.revision) < each.revision
    )


def _is_back(known: Known, found: Found) -> bool:
    """Whether something that the rewound store lacked stands where it was seen."""
    return any(
        each.revision > known.rewound_to and found.witnesses.get(each.key) == each.revision
        for each in known.witnesses
    )


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
