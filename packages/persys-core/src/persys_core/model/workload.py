"""A workload's durable records: what is wanted, where it is, and what became of it.

Four records with separate writers (architecture §3.6): ``Workload`` is written by the API,
``Assignment`` and ``Allocation`` by placement, ``StatusRecord`` by the reconciler, and
``Tombstone`` by whoever takes work from a node that has not confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.mappings import text_map
from persys_core.model.resources import Resources
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState, ObservedState, WorkloadStatus

__all__ = [
    "Allocation",
    "Assignment",
    "Failure",
    "FailureKind",
    "Imported",
    "Intent",
    "IntentAction",
    "Observed",
    "ReapplyState",
    "Reason",
    "RetryState",
    "StatusRecord",
    "Tombstone",
    "Workload",
]


@frozen
class Imported:
    """A record that was rebuilt from what the agent of ``node_id`` reports, which is no spec.

    Until its user applies the spec, the one in the record stands for what is not known: the
    workload is charged with nothing, watched, and left alone.
    """

    node_id: NodeId
    at: datetime


@frozen
class Workload:
    """The wish: identity, spec, its revision and the desired state.

    ``uid`` tells two lives of one id apart: outcomes of another uid are dropped.
    ``client_revision_id`` is the client's own label, kept for display only. ``imported`` is set
    while the spec is not known; then ``revision_id`` is the one that the agent has.
    """

    id: WorkloadId
    uid: str
    spec: WorkloadSpec
    revision_id: RevisionId
    desired_state: DesiredState
    created_at: datetime
    updated_at: datetime
    client_revision_id: str = ""
    imported: Imported | None = None


class FailureKind(StrEnum):
    """How a failure counts (field report R03)."""

    INFRASTRUCTURE = "infrastructure"
    """The workload is not to blame: spends no attempt, tried again without end."""
    WORKLOAD = "workload"
    """Spends an attempt; Failed when the budget is gone and the grace is over."""
    PERMANENT = "permanent"
    """No later try can succeed: Failed at once."""


@frozen
class Failure:
    """Why something did not work: a stable code, a text for people, and how it counts."""

    code: str
    message: str
    kind: FailureKind
    at: datetime


@frozen
class Reason:
    """Why the status is what it is, and when something happens next.

    ``code`` is stable (``cpu``, ``agent_unreachable``, ``image_not_found`` …); ``message`` is
    at most 1 KiB (field report V02).
    """

    code: str
    message: str
    since: datetime
    next_try_at: datetime | None = None
    retryable: bool = True


@frozen
class RetryState:
    """The failure budget of the present revision; see ``persys_core.retry.machine``."""

    attempts: int = 0
    next_at: datetime | None = None
    first_failure_at: datetime | None = None
    infrastructure_failures: int = 0
    exhausted: bool = False
    avoid_node_id: NodeId = ""
    """The node that the last failure happened on; placement prefers others while it stands."""


@frozen
class ReapplyState:
    """How often the present revision was sent, and when it may be sent again."""

    attempts: int = 0
    next_at: datetime | None = None
    last_apply_at: datetime | None = None
    last_apply_revision: RevisionId = ""
    last_apply_stops: bool = False
    """What was sent last asked for rest, not for a run."""


class IntentAction(StrEnum):
    """A call to an agent that a commit announced."""

    APPLY_RUNNING = "apply_running"
    APPLY_STOPPED = "apply_stopped"
    DELETE = "delete"


@frozen
class Intent:
    """An agent call, committed before it is made (safety rule 3).

    A later leader acts on the workload only after ``deadline``, since the call may still arrive;
    so does its own leader where the call was not answered (``unanswered``).
    """

    action: IntentAction
    node_id: NodeId
    revision_id: RevisionId
    epoch: int
    committed_at: datetime
    deadline: datetime
    unanswered: bool = False


@frozen
class Observed:
    """What an agent said of the workload, who said it and when."""

    state: ObservedState = ObservedState.UNKNOWN
    revision_id: RevisionId = ""
    node_id: NodeId = ""
    at: datetime | None = None
    message: str = ""


@frozen
class StatusRecord:
    """What became of the wish. Everything that a restarted or other replica needs to go on.

    ``data_node_id`` is the node that holds the workload's local data, once it ran there.
    ``settled_since`` is when observed last became equal to desired; after a stable run the
    failure budget counts as new (decisions, values: retry). ``stopped_on`` is the node where the
    deadline of a forced drain stopped it, while it waits for another one.
    """

    id: WorkloadId
    uid: str
    status: WorkloadStatus
    updated_at: datetime
    observed: Observed = Observed()
    reason: Reason | None = None
    failure: Failure | None = None
    retry: RetryState = RetryState()
    reapply: ReapplyState = ReapplyState()
    intent: Intent | None = None
    last_action: str = ""
    settled_since: datetime | None = None
    data_node_id: NodeId = ""
    user_metadata: Mapping[str, str] = field(factory=dict, converter=text_map, repr=False)
    """What another scheduler keeps of the wish beside its status, until it is taken over."""
    stopped_on: NodeId = ""

    @property
    def waits_to_grow(self) -> bool:
        """Whether its node has no room for the new revision (reason ``resize:<dimension>``)."""
        return self.reason is not None and self.reason.code.startswith("resize:")


@frozen
class Assignment:
    """The one node that a workload belongs to, and what it is charged with there.

    ``charged`` is subtracted exactly when the assignment is released. A Completed or Failed
    workload is ``released``: its share is free, but the remains still stand on that node.
    """

    workload_id: WorkloadId
    uid: str
    node_id: NodeId
    charged: Resources
    reason: str
    created_at: datetime
    released: bool = False


@frozen
class Allocation:
    """The ledger of one node: the sum of what assignments and tombstones are charged there.

    Compared and rewritten in every placement commit, so no set of replicas can oversubscribe a
    node (architecture §3.2). ``workload_count`` feeds the spread term of the score.
    """

    node_id: NodeId
    charged: Resources = Resources()
    workload_count: int = 0

    def charge(self, request: Resources) -> Allocation:
        """The ledger after one more workload was committed here."""
        return Allocation(self.node_id, self.charged + request, self.workload_count + 1)

    def release(self, charged: Resources, shares: int = 1) -> Allocation:
        """The ledger after the share of ``shares`` workloads was given back."""
        return Allocation(self.node_id, self.charged - charged, self.workload_count - shares)


@frozen
class Tombstone:
    """A delete that is owed to a node which did not confirm that the work is gone.

    While it stands, ``held`` stays charged to the node and the id may not be placed there.
    """

    node_id: NodeId
    workload_id: WorkloadId
    uid: str
    revision_id: RevisionId
    held: Resources
    created_at: datetime
    reason: str = ""
    shares: int = 1
    """How many charged assignments it stands for (none where the share was released before)."""
    after_healthy: bool = False
    """Whether the old copy runs on until the workload is seen running in its new place."""
    delete_volumes: bool = False
    """Whether the delete carries out a user's wish, so that the data goes with it."""
    intent: Intent | None = None
