"""What a transport may ask: already valid, in the core's words (mapping checks every field)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import field, frozen

from persys_core.model.ids import NodeId, StoreRevision, WorkloadId
from persys_core.model.mappings import text_map
from persys_core.model.node import StoragePool
from persys_core.model.observation import AgentReport
from persys_core.model.resources import Resources
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState, TaintEffect, WorkloadType
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.model.volume import VolumeId

__all__ = [
    "AcknowledgeEmpty",
    "ApplyWorkload",
    "AutomationAction",
    "AutomationSuggestion",
    "DrainNode",
    "Heartbeat",
    "ImportFromAgents",
    "NodeIntentChange",
    "NodeLabelChange",
    "NodeTaintChange",
    "RegisterNode",
    "ReleaseVolume",
    "RemoveNode",
    "VolumeFilter",
]


@frozen
class RegisterNode:
    """A node presents itself: what it has and can, and where its agent listens (host:port).

    ``boot_id`` is that of its heartbeats; with it, a node id is taken from nobody who still beats.
    """

    node_id: NodeId
    capacity: Resources
    endpoint: str
    workload_types: frozenset[WorkloadType]
    reserved: Resources = Resources()
    storage_drivers: frozenset[str] = frozenset({"local"})
    storage_pools: tuple[StoragePool, ...] = ()
    labels: Mapping[str, str] = field(factory=dict, converter=text_map)
    agent_version: str = ""
    cluster_id: str = ""
    stop_after_seconds: int = 0
    boot_id: str = ""


@frozen
class Heartbeat:
    """A node is alive, and says what it runs.

    ``boot_id`` and ``sequence`` order beats of agents that send them (field report N07);
    ``sent_at`` orders the others.
    """

    node_id: NodeId
    reports: tuple[AgentReport, ...] = ()
    usage: NodeUsage | None = None
    workload_usage: tuple[WorkloadUsage, ...] = ()
    boot_id: str = ""
    sequence: int = 0
    sent_at: datetime | None = None


@frozen
class ApplyWorkload:
    """Create or change a workload. ``spec`` ``None`` changes the desired state only (§2.6).

    ``desired_state`` ``None`` keeps the stored one, and is Running for a new workload.
    ``expected_revision`` is the store revision that the workload's record must have for anything to
    be done, 0 where there must be no such record; ``None`` compares nothing.
    """

    workload_id: WorkloadId
    spec: WorkloadSpec | None = None
    desired_state: DesiredState | None = None
    client_revision_id: str = ""
    expected_revision: StoreRevision | None = None


class AutomationAction(StrEnum):
    """What a policy may suggest for a workload; the words are those of the answers."""

    SET_DESIRED_STATE = "set_desired_state"
    RETRY_WORKLOAD = "retry_workload"
    DELETE_WORKLOAD = "delete_workload"
    SCALE_REPLICAS = "scale_replicas"
    UNSUPPORTED = "unsupported"
    """An action that this release does not know."""


@frozen
class AutomationSuggestion:
    """What a policy would do with a workload, and why.

    Suggestions with one ``suggestion_id`` are one suggestion. ``desired_state`` belongs to
    ``SET_DESIRED_STATE``.
    """

    target: WorkloadId
    action: AutomationAction
    suggestion_id: str = ""
    policy_id: str = ""
    policy_name: str = ""
    desired_state: DesiredState | None = None
    reason: str = ""


@frozen
class NodeIntentChange:
    """An operator's wish for a node, with who asked and why."""

    node_id: NodeId
    reason: str = ""
    actor: str = "operator"


@frozen
class DrainNode:
    """Have everything leave a node; see ``model.node.DrainOrder``."""

    change: NodeIntentChange
    deadline: timedelta | None = None
    force: bool = False


@frozen
class RemoveNode:
    """Forget a node; with ``force`` although work is assigned to it or it owes deletes."""

    change: NodeIntentChange
    force: bool = False


@frozen
class ImportFromAgents:
    """Rebuild records from what agents run: of ``node_ids``, or of every node that is known."""

    node_ids: tuple[NodeId, ...] = ()
    dry_run: bool = False
    reason: str = ""
    actor: str = "operator"


@frozen
class AcknowledgeEmpty:
    """Take the store as it is; ``reason`` is kept in the audit event."""

    reason: str
    actor: str = "operator"


@frozen
class VolumeFilter:
    """Which volumes a reader wants; an empty field matches everything."""

    node_id: NodeId = ""
    workload_id: WorkloadId = ""
    phase: str = ""


@frozen
class ReleaseVolume:
    """Give up what is recorded of a volume; with ``force`` although something refers to it or may
    still write to it, which the operator answers for."""

    volume_id: VolumeId
    reason: str = ""
    force: bool = False
    actor: str = "operator"


@frozen
class NodeTaintChange:
    """Set ``taint``, or take away the taints of its key (and effect, where ``effect`` is given)."""

    change: NodeIntentChange
    key: str
    value: str = ""
    effect: TaintEffect | None = None


@frozen
class NodeLabelChange:
    """Set an operator's label, or take it away (``value`` ``None``)."""

    change: NodeIntentChange
    key: str
    value: str | None = None
