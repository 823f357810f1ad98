"""What the agent does by itself about a workload that is not as it should be.

Decided here: an ordered set of rules over what is wanted, what was brought about once, and what
the runtime says. The agent keeps what ran; it does not retry what never did, and it does not
restart what ended by itself under a policy that says so: that is the scheduler's decision, which
may have placed the work elsewhere meanwhile. Pure.
"""

from __future__ import annotations

from enum import Enum, auto

from persys_agent.engine.inventory import Seen, Unanswered
from persys_agent.runtimes.port import Instance
from persys_agent.state.records import Workload
from persys_core.model.observation import AgentState
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState, RestartPolicy

__all__ = ["Repair", "decide_repair", "is_at_rest", "is_completed", "is_same"]

_ENDS_WELL = (RestartPolicy.NO, RestartPolicy.ON_FAILURE)
_COMES_BACK = (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED)


class Repair(Enum):
    """What to do about a workload."""

    NOTHING = auto()
    START = auto()
    RECREATE = auto()
    STOP = auto()
    DELETE = auto()


def is_same(row: Workload, instance: Instance) -> bool:
    """Whether the instance was made of what the row has."""
    return (row.revision_id, row.spec_hash) == (instance.revision_id, instance.spec_hash)


def is_completed(instance: Instance, spec: WorkloadSpec) -> bool:
    """Whether it ended with success and is to rest then; only containers say so."""
    ended_well = instance.state is AgentState.STOPPED and instance.exit_code == 0
    return ended_well and spec.restart_policy in _ENDS_WELL


def is_at_rest(instance: Instance, spec: WorkloadSpec) -> bool:
    """Whether it ended by itself and whether it runs again is the scheduler's to say."""
    if is_completed(instance, spec):
        return True
    return instance.state is AgentState.FAILED and spec.restart_policy not in _COMES_BACK


def decide_repair(row: Workload, spec: WorkloadSpec, seen: Seen) -> Repair:
    """What to do, given what was seen of a workload for which no task is open."""
    if isinstance(seen, Unanswered):
        return Repair.NOTHING
    match row.desired_state:
        case DesiredState.DELETED:
            return Repair.DELETE
        case DesiredState.STOPPED:
            runs = seen is not None and seen.state in (AgentState.RUNNING, AgentState.PENDING)
            return Repair.STOP if runs else Repair.NOTHING
        case DesiredState.RUNNING:
            return _keep_running(row, spec, seen) if row.is_settled else Repair.NOTHING


def _keep_running(row: Workload, spec: WorkloadSpec, seen: Instance | None) -> Repair:
    if seen is None:
        return Repair.NOTHING if row.has_ended else Repair.RECREATE
    if not is_same(row, seen):
        return Repair.NOTHING
    match seen.state:
        case AgentState.RUNNING | AgentState.PENDING | AgentState.UNKNOWN:
            return Repair.NOTHING
        case AgentState.STOPPED | AgentState.FAILED:
            return Repair.NOTHING if is_at_rest(seen, spec) else Repair.START
