"""What happened, for people and dashboards: bounded, best effort, never a basis of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.mappings import text_map

__all__ = ["MAX_REASON_BYTES", "Event", "EventFilter", "EventType", "capped"]

MAX_REASON_BYTES = 1024


class EventType(StrEnum):
    """The closed list: the July release's types, then ours."""

    NODE_JOINED = "NodeJoined"
    NODE_LOST = "NodeLost"
    NODE_LEFT = "NodeLeft"
    NODE_READY = "NodeReady"
    NODE_DRAINING = "NodeDraining"
    NODE_TAINTED = "NodeTainted"
    NODE_UNTAINTED = "NodeUntainted"
    NODE_LABEL_SET = "NodeLabelSet"
    NODE_LABEL_DELETED = "NodeLabelDeleted"
    WORKLOAD_SCHEDULED = "WorkloadScheduled"
    WORKLOAD_FAILED = "WorkloadFailed"
    DRIFT_DETECTED = "DriftDetected"
    RETRY_TRIGGERED = "RetryTriggered"
    RESCHEDULED = "Rescheduled"
    RELOCATED = "Relocated"
    RESCHEDULE_SKIPPED = "RescheduleSkipped"
    SCHEDULER_MODE_CHANGED = "SchedulerModeChanged"
    LEADER_ELECTED = "LeaderElected"
    LEADER_LOST = "LeaderLost"
    # Ours
    NODE_CORDONED = "NodeCordoned"
    NODE_UNCORDONED = "NodeUncordoned"
    NODE_DRAINED = "NodeDrained"
    DRAIN_DEADLINE = "DrainDeadline"
    NODE_FENCED = "NodeFenced"
    NODE_FENCE_ENDED = "NodeFenceEnded"
    NODE_TYPES_CHANGED = "NodeTypesChanged"
    NODE_ID_TAKEN = "NodeIdTaken"
    VOLUME_RELEASED = "VolumeReleased"
    NODE_OVERCOMMITTED = "NodeOvercommitted"
    WORKLOAD_CREATED = "WorkloadCreated"
    WORKLOAD_UPDATED = "WorkloadUpdated"
    WORKLOAD_RUNNING = "WorkloadRunning"
    WORKLOAD_STOPPED = "WorkloadStopped"
    WORKLOAD_COMPLETED = "WorkloadCompleted"
    WORKLOAD_UNSCHEDULABLE = "WorkloadUnschedulable"
    WORKLOAD_DELETED = "WorkloadDeleted"
    AUTOMATION_APPLIED = "AutomationApplied"
    AUTOMATION_REJECTED = "AutomationRejected"
    MASS_NODE_LOSS = "MassNodeLoss"
    EVENTS_LOST = "EventsLost"
    STORE_REWOUND = "StoreRewound"
    STORE_ACKNOWLEDGED = "StoreAcknowledged"
    WORKLOADS_IMPORTED = "WorkloadsImported"
    SHARDS_CHANGED = "ShardsChanged"
    FOREIGN_WRITER = "ForeignWriter"


@frozen
class Event:
    """One thing that happened; of what repeats itself, the publisher tells now and then, counted.

    ``id`` is assigned by the event log and orders events; empty before that.
    """

    type: EventType
    timestamp: datetime
    workload_id: WorkloadId = ""
    node_id: NodeId = ""
    reason: str = ""
    details: Mapping[str, str] = field(factory=dict, converter=text_map)
    id: str = ""


@frozen
class EventFilter:
    """Which events a reader wants; an empty field matches everything."""

    type: str = ""
    workload_id: WorkloadId = ""
    node_id: NodeId = ""

    def matches(self, event: Event) -> bool:
        """Whether ``event`` is wanted. A gap (``EventsLost``) is told to every reader."""
        if event.type is EventType.EVENTS_LOST:
            return True
        return (
            self.type in ("", event.type)
            and self.workload_id in ("", event.workload_id)
            and self.node_id in ("", event.node_id)
        )


def capped(text: str, limit: int = MAX_REASON_BYTES) -> str:
    """``text`` cut to ``limit`` bytes of UTF-8, with an ellipsis where something is missing."""
    raw = text.encode()
    if len(raw) <= limit:
        return text
    return raw[: limit - 3].decode(errors="ignore") + "…"
