"""Which nodes run workloads with which labels: what anti-affinity asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["Label", "LabelIndex", "labels_in"]

Label: TypeAlias = tuple[str, str]
_OWN_PREFIX = "persys."


def labels_in(metadata: Mapping[str, str]) -> Iterator[Label]:
    """The labels in a workload's metadata; the control plane's own ``persys.`` keys are none."""
    return (item for item in metadata.items() if not item[0].startswith(_OWN_PREFIX))


class LabelIndex:
    """Label -> node -> the workloads there that have it. A workload is on one node at a time."""

    def __init__(self) -> None:
        self._runners: dict[Label, dict[NodeId, set[WorkloadId]]] = {}
        self._placed: dict[WorkloadId, tuple[NodeId, tuple[Label, ...]]] = {}

    def place(self, workload_id: WorkloadId, node_id: NodeId, metadata: Mapping[str, str]) -> None:
        """The workload is on this node, with these labels, and nowhere else."""
        wanted = (node_id, tuple(sorted(labels_in(metadata))))
        if self._placed.get(workload_id) == wanted:
            return
        self.remove(workload_id)
        self._placed[workload_id] = wanted
        for label in wanted[1]:
            self._runners.setdefault(label, {}).setdefault(node_id, set()).add(workload_id)

    def remove(self, workload_id: WorkloadId) -> None:
        """The workload is on no node; no error where it was on none."""
        node_id, labels = self._placed.pop(workload_id, ("", ()))
        for label in labels:
            nodes = self._runners[label]
            nodes[node_id].discard(workload_id)
            if not nodes[node_id]:
                del nodes[node_id]
            if not nodes:
                del self._runners[label]

    def nodes_running(self, label: Label, other_than: WorkloadId) -> Iterator[NodeId]:
        """The nodes where a workload other than ``other_than`` has ``label``."""
        for node_id, workloads in self._runners.get(label, {}).items():
            if len(workloads) > 1 or other_than not in workloads:
                yield node_id
