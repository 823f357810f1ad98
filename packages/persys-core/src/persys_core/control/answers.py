"""What the application layer answers: values a transport turns into its own messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import field, frozen

from persys_core.control.standing import Standing
from persys_core.model.ids import NodeId, RevisionId, StoreRevision, WorkloadId
from persys_core.model.node import Node, OperatorIntent
from persys_core.model.resources import Resources
from persys_core.model.spec_changes import SpecChange
from persys_core.model.states import NodeStatus, OperatingMode
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.model.volume import Attachment, Volume, VolumeId
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.placement.explain import Explanation
from persys_core.recovery.plan import ImportItem

__all__ = [
    "ApplyAnswer",
    "ApplyOutcomeKind",
    "AutomationDecision",
    "ClusterSummary",
    "ClusterTotals",
    "DeleteAnswer",
    "DrainBlocker",
    "DrainProgress",
    "Freshness",
    "HeartbeatAnswer",
    "ImportAnswer",
    "NodeFenced",
    "NodeRemoval",
    "NodeView",
    "Plan",
    "RegisterAnswer",
    "VolumeRelease",
    "VolumeView",
    "WorkloadView",
]


@frozen
class RegisterAnswer:
    """Whether the node is in; a refusal says why (the agent tries again with backoff).

    ``id_taken``: it is refused because another agent holds the node id, which only people can mend.
    """

    accepted: bool
    reason: str
    heartbeat_interval: timedelta
    lease_expires_at: datetime
    id_taken: bool = False


@frozen
class HeartbeatAnswer:
    """``drain_node``: accept no new apply (running work is never stopped by it).

    ``known`` is false where the node is not registered: it must register again. ``confirmed`` is
    how much longer its lease lasts for every replica; ``None`` where that was not said.
    """

    acknowledged: bool
    drain_node: bool
    lease_expires_at: datetime
    known: bool = True
    confirmed: timedelta | None = None


class ApplyOutcomeKind(StrEnum):
    """What an apply changed."""

    CREATED = "Created"
    UPDATED = "Updated"
    DESIRED_STATE_CHANGED = "DesiredStateChanged"
    UNCHANGED = "Unchanged"


@frozen
class ApplyAnswer:
    """The wish is stored. ``node_id`` is empty and ``explanation`` says why where not placed."""

    outcome: ApplyOutcomeKind
    revision_id: RevisionId
    node_id: NodeId = ""
    explanation: Explanation | None = None


@frozen
class Plan:
    """What an apply would do now; nothing of it is stored or held.

    ``expected_revision`` in the apply makes it hold for exactly what was looked at: the revision of
    the workload's record, 0 where there is none. ``store_revision`` is that of the whole view.
    ``changes`` are field by field, secrets masked. ``requested`` is what placement counts.
    ``notes``: what somebody might expect of the apply and it does not do.
    """

    outcome: ApplyOutcomeKind
    revision_id: RevisionId
    node_id: NodeId
    explanation: Explanation
    changes: tuple[SpecChange, ...]
    requested: Resources
    expected_revision: StoreRevision
    store_revision: StoreRevision
    notes: tuple[str, ...] = ()


@frozen
class AutomationDecision:
    """What became of a suggestion. ``decision`` is ``accepted`` or ``rejected``, ``applied_action``
    what was done (empty where nothing was), ``reason`` a text for people."""

    accepted: bool
    decision: str
    reason: str
    applied_action: str
    decided_at: datetime


@frozen
class DeleteAnswer:
    """``outcome``: ``Deleting`` (the agent is being told), ``Tombstoned`` or ``Deleted``."""

    outcome: str


@frozen
class Freshness:
    """From which state of the store an answer was read, and how old that knowledge is."""

    revision: StoreRevision
    stale: bool = False
    age: timedelta = timedelta(0)


@frozen
class DrainBlocker:
    """A workload that cannot leave its node now, and why."""

    workload_id: WorkloadId
    code: str
    reason: str


@frozen
class DrainProgress:
    """How far a drain is: ``remaining`` includes what is blocked, ``moving`` is what is
    still to end on the node: old copies, and what is being stopped or deleted.

    ``stopped``: what the deadline of a forced drain stopped and no node has taken since; not
    among ``moved``. ``owed``: of which workloads the node owes a delete, sorted; they are
    part of ``moving``.
    """

    moved: int
    remaining: int
    moving: int
    blocked: tuple[DrainBlocker, ...] = ()
    deadline_at: datetime | None = None
    force: bool = False
    stopped: int = 0
    owed: tuple[WorkloadId, ...] = ()


@frozen
class NodeRemoval:
    """Whether a node was forgotten: ``assigned`` and ``owed`` stood in the way or, where it was
    forced, lost their node. ``beats``: its agent still does, and so registers again."""

    accepted: bool
    assigned: tuple[WorkloadId, ...] = ()
    owed: tuple[WorkloadId, ...] = ()
    beats: bool = False


@frozen
class ImportAnswer:
    """What an import did, or would do. ``silent``: the nodes that gave no full list, and why; what
    they run is not in ``items`` and must not be taken for absent. ``mode``: the mode afterwards."""

    items: tuple[ImportItem, ...]
    listed: tuple[NodeId, ...]
    silent: Mapping[NodeId, str]
    dry_run: bool
    mode: OperatingMode


@frozen
class VolumeView:
    """A volume as shown, with who holds it. ``held_reason``: why it cannot move or go away now."""

    volume: Volume
    attachments: tuple[Attachment, ...] = ()
    held_reason: str = ""


@frozen
class VolumeRelease:
    """Whether a volume, or by force its holder's claim, was given up, and whether its record is
    gone. ``holder``: the node that held it for writing until then, if one did."""

    accepted: bool
    removed: bool
    view: VolumeView
    holder: NodeId = ""


@frozen
class NodeView:
    """A node as shown: record, liveness, ledger and measured use side by side.

    ``replaced``: in the answer to a drain of a node that was being drained already, the wish that
    does not hold any more.
    """

    node: Node
    status: NodeStatus
    status_reason: str
    allocated: Resources
    workload_count: int
    last_heartbeat: datetime | None
    usage: NodeUsage | None = None
    overcommitted: bool = False
    replaced: OperatorIntent | None = None

    @property
    def free(self) -> Resources:
        """What placement may still charge: allocatable less the ledger."""
        return self.node.allocatable - self.allocated


@frozen
class WorkloadView:
    """A workload as shown."""

    workload: Workload
    status: StatusRecord
    assignment: Assignment | None
    usage: WorkloadUsage | None = None
    max_attempts: int = 0


@frozen
class NodeFenced:
    """A node that counts as cut off, and the exclusive volumes that may leave it for that."""

    node: NodeView
    volume_ids: tuple[VolumeId, ...]


@frozen
class ClusterTotals:
    """Sums over all nodes: what may be placed, what is charged, and what they measured of
    themselves, as far as this replica was told."""

    allocatable: Resources = Resources()
    allocated: Resources = Resources()
    used: Resources = Resources()


@frozen
class ClusterSummary:
    """Counts per state, and who answers."""

    nodes_by_status: Mapping[NodeStatus, int]
    workloads_by_status: Mapping[str, int]
    deleted_workloads: int
    mode: OperatingMode
    mode_reason: str
    instance_id: str
    leader_id: str
    is_leader: bool
    generated_at: datetime
    standing: Standing
    problems: Sequence[str] = field(factory=tuple)
    workloads_by_desired_state: Mapping[str, int] = field(factory=dict)
    totals: ClusterTotals = ClusterTotals()
