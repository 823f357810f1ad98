"""The closed vocabularies of states. *Desired* is the user's word, *observed* the agent's."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "DesiredState",
    "NodeStatus",
    "ObservedState",
    "OperatingMode",
    "RestartPolicy",
    "TaintEffect",
    "WorkloadStatus",
    "WorkloadType",
]


class WorkloadType(StrEnum):
    """What kind of thing runs; a node advertises the kinds that it can run."""

    CONTAINER = "container"
    COMPOSE = "compose"
    VM = "vm"
    MICROVM = "microvm"


class DesiredState(StrEnum):
    """What the user wants of a workload."""

    RUNNING = "Running"
    STOPPED = "Stopped"
    DELETED = "Deleted"


class ObservedState(StrEnum):
    """What the assigned node's agent last said of a workload.

    ``MISSING``: the agent answered and does not have it. ``UNKNOWN``: nothing has been heard
    yet, or the runtime could not tell.
    """

    PENDING = "Pending"
    RUNNING = "Running"
    STOPPED = "Stopped"
    FAILED = "Failed"
    COMPLETED = "Completed"
    MISSING = "Missing"
    UNKNOWN = "Unknown"


class WorkloadStatus(StrEnum):
    """The one-word summary that people and programs read (values of the reference)."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    UPDATING = "Updating"
    RUNNING = "Running"
    STOPPED = "Stopped"
    COMPLETED = "Completed"
    RETRY_PENDING = "RetryPending"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    DELETING = "Deleting"
    DELETED = "Deleted"


class NodeStatus(StrEnum):
    """A node as shown: liveness (observed) first, then the operator's intent."""

    READY = "Ready"
    NOT_READY = "NotReady"
    DRAINING = "Draining"


class RestartPolicy(StrEnum):
    """When the agent's runtime restarts an ended container by itself."""

    NO = "no"
    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    UNLESS_STOPPED = "unless-stopped"


class TaintEffect(StrEnum):
    """What a taint does to workloads that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class OperatingMode(StrEnum):
    """What the control plane may do: see ``persys_core.modes``."""

    NORMAL = "normal"
    DEGRADED = "degraded"
    RECOVERY = "recovery"
