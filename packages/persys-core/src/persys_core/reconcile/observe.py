"""What an agent's report means: one sighting per report.

Decided here: which observed state a report stands for, and whether it shows a failure. Agents say
less than they know, and sometimes something else (decisions §2, reference defects, agent 1, 8-10):

* A failed apply is masked by the next look at the runtime, which knows nothing of the workload:
  *unknown, container not found*, or for Compose *stopped, no containers*. The cause is left in the
  metadata. Such a report is a failure.
* *Unknown, container not found* without a cause means that it is not there: MISSING.
* An agent that deletes what it does not have says *failed*; that too means MISSING.
* Agents know no end: a container that exited 0 is *stopped*. Whether that is COMPLETED depends on
  what was wished of it.
* A task in flight shows in a status query alone, and then the state says nothing else.

Not decided here: what is done about it (``decide``), and whether a failure is new. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta

from attrs import evolve, frozen

from persys_core.model.ids import RevisionId
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.secrets import without_values
from persys_core.model.states import DesiredState, ObservedState, RestartPolicy
from persys_core.model.workload import Failure, Workload
from persys_core.retry.failure import classify_failure
from persys_core.retry.texts import presentable

__all__ = [
    "Sighting",
    "is_unrecorded",
    "missing",
    "observe_report",
    "says_gone",
    "says_gone_and_stopped",
    "will_be_started",
]


@frozen
class Sighting:
    """What was seen of one workload on one node.

    ``failure`` is set exactly where the state is FAILED. ``has_revision`` is false for the
    heartbeats of old agents: then it is a hint that nudges, and decides nothing (decisions §2.10).
    ``message`` is clean of the spec's secrets and at most 1 KiB. ``ended``: it rests although its
    agent was not told to stop it, and nothing but that agent or we will start it again, so how
    often is for us to say. Containers have a restart policy for that. ``will_start``: it is to
    rest and does, but its agent still means to run it: it starts at that agent's next look.
    ``unrecorded``: it runs, and its agent, which lost its state, knows no more of it than that.
    """

    state: ObservedState
    revision_id: RevisionId = ""
    failure: Failure | None = None
    task_in_flight: bool = False
    message: str = ""
    ended: bool = False
    will_start: bool = False
    unrecorded: bool = False

    @property
    def has_revision(self) -> bool:
        """Whether the report says which revision it is about."""
        return bool(self.revision_id)


_IN_FLIGHT = (TaskStatus.PENDING, TaskStatus.RUNNING)
_NOT_THERE = re.compile(r"not found|no such|does not exist", re.IGNORECASE)
# What the agent's own self-healing notes while it makes the workload anew: no failed apply.
_LOST_IN_RUNTIME = re.compile(
    r"\b(?:container|project|domain)\b.{0,300}?(?:not found|no such|does not exist)"
    r"|\bno such (?:container|domain)\b",
    re.IGNORECASE | re.DOTALL,
)
_DELETE_OF_UNKNOWN = re.compile(r"failed to delete workload .*workload not found", re.DOTALL)
_ENDED = re.compile(r"\bexited with code|\A\s*dead:")
_RESTS_AFTER_SUCCESS = (RestartPolicy.NO, RestartPolicy.ON_FAILURE)
_RESTART_TAKES = timedelta(seconds=10)
_AGENT_LOOKS_AGAIN = timedelta(seconds=60)  # two of its looks at the runtime
_STDERR_TAIL = 300


def missing() -> Sighting:
    """The agent answered and does not have the workload (status not found, not in its list)."""
    return Sighting(ObservedState.MISSING, message="the agent does not have it")


def says_gone(report: AgentReport) -> bool:
    """Whether the agent says that it does not have the workload (after a delete)."""
    return report.state is AgentState.FAILED and _failed(report) is ObservedState.MISSING


def says_gone_and_stopped(report: AgentReport) -> bool:
    """Whether its runtime has nothing of the workload, and the agent will not make it anew: all
    that is left is a note that it was told to stop it."""
    told = report.desired_state is DesiredState.STOPPED
    return told and report.state is AgentState.UNKNOWN and bool(_NOT_THERE.search(report.message))


def observe_report(
    report: AgentReport, workload: Workload, now: datetime, *, secrets: Collection[str] = ()
) -> Sighting:
    """The sighting that ``report`` is, at ``now``, given what is wished of ``workload``.

    ``secrets``: ``model.spec.secret_values`` of the spec; agents echo them in error texts.
    """
    if _task_in_flight(report):
        return _sighting(report, ObservedState.PENDING, secrets, task_in_flight=True)
    state = _observed_state(report, workload)
    will_start = will_be_started(report, workload)
    if state is not ObservedState.FAILED:
        seen = _sighting(report, state, secrets)
        ended = _ended_by_itself(report, state, workload)
        return evolve(seen, ended=ended, will_start=will_start, unrecorded=is_unrecorded(report))
    cause = presentable(_cause(report, secrets), secrets)
    return Sighting(
        state,
        report.revision_id,
        classify_failure(_code(report), cause, now),
        message=cause,
        will_start=will_start,
    )


def will_be_started(report: AgentReport, workload: Workload) -> bool:
    """Whether the user stopped it and it rests, but its agent was last told to run it.

    A machine that goes down in the middle of a first apply comes back so: nothing runs yet. Only
    answers to questions say what the agent means to do; heartbeats do not.
    """
    if workload.desired_state is not DesiredState.STOPPED:
        return False
    rests = report.state in (AgentState.STOPPED, AgentState.FAILED, AgentState.UNKNOWN)
    return rests and report.desired_state is DesiredState.RUNNING


def is_unrecorded(report: AgentReport) -> bool:
    """Whether it runs without a record of its agent's: marked as that agent's own, and no more."""
    return report.state is AgentState.RUNNING and report.metadata.get("orphan") == "true"


def _sighting(
    report: AgentReport,
    state: ObservedState,
    secrets: Collection[str],
    *,
    task_in_flight: bool = False,
) -> Sighting:
    message = presentable(report.message, secrets)
    return Sighting(state, report.revision_id, None, task_in_flight, message)


def _task_in_flight(report: AgentReport) -> bool:
    return report.task_status in _IN_FLIGHT or report.metadata.get("task_status", "") in _IN_FLIGHT


def _observed_state(report: AgentReport, workload: Workload) -> ObservedState:
    match report.state:
        case AgentState.RUNNING:
            # A cause that is left from earlier says nothing of what runs now (defect C8).
            return ObservedState.RUNNING
        case AgentState.PENDING:
            return ObservedState.PENDING
        case AgentState.FAILED:
            return _failed(report)
        case AgentState.STOPPED:
            return _stopped(report, workload)
        case AgentState.UNKNOWN:
            return _unknown(report, workload)


def _failed(report: AgentReport) -> ObservedState:
    """A delete of what the agent does not have leaves *failed* behind (agent defect 10)."""
    gone = _DELETE_OF_UNKNOWN.search(report.message)
    return ObservedState.MISSING if gone else ObservedState.FAILED


def _stopped(report: AgentReport, workload: Workload) -> ObservedState:
    if not _should_run(report, workload):
        return ObservedState.STOPPED
    if _exited_well(report):
        rests = workload.spec.restart_policy in _RESTS_AFTER_SUCCESS
        return ObservedState.COMPLETED if rests else ObservedState.STOPPED
    return ObservedState.FAILED if _last_error(report) else ObservedState.STOPPED


def _unknown(report: AgentReport, workload: Workload) -> ObservedState:
    if not _NOT_THERE.search(report.message):
        return ObservedState.UNKNOWN
    if workload.desired_state is DesiredState.DELETED:
        # The runtime has nothing, but the agent still keeps a record that could bring it back.
        return ObservedState.UNKNOWN
    error = _last_error(report)
    if not error or _is_being_remade(report, error):
        return ObservedState.MISSING
    return ObservedState.FAILED


def _ended_by_itself(report: AgentReport, state: ObservedState, workload: Workload) -> bool:
    rests = state is ObservedState.STOPPED and _should_run(report, workload)
    return rests and workload.spec.restart_policy is None


def _should_run(report: AgentReport, workload: Workload) -> bool:
    """Whether both we and the agent want it to run; else being stopped is nothing to wonder at."""
    wanted = workload.desired_state is DesiredState.RUNNING
    return wanted and report.desired_state is not DesiredState.STOPPED


def _exited_well(report: AgentReport) -> bool:
    """Whether it ended with exit code 0; one that was only created has that code too."""
    if report.metadata.get("container.exit_code") != "0":
        return False
    exited = report.metadata.get("container.state", report.message).strip() == "exited"
    return exited and not _is_being_restarted(report)


def _is_being_restarted(report: AgentReport) -> bool:
    """Whether the agent itself may have stopped it, to start it again (agent defect 5).

    Agents note such a restart and never clear the note, so how long ago it ended counts as well: a
    moment ago, the start may be on its way. Long ago, the machine went down in between, since an
    agent that works starts what has stopped at its next look; nobody knows then whose end it was,
    and what was called done would never run again. Both instants are of the agent's own clock.
    """
    if report.metadata.get("pending_recovery_action") != "restart":
        return False
    finished_at = _instant(report.metadata.get("container.finished_at", ""))
    if finished_at is None or report.reported_at is None:
        return False
    return not _RESTART_TAKES <= report.reported_at - finished_at <= _AGENT_LOOKS_AGAIN


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None


def _last_error(report: AgentReport) -> str:
    named = ("last_error", "failure_message")
    return next((text for key in named if (text := report.metadata.get(key, "").strip())), "")


def _is_being_remade(report: AgentReport, error: str) -> bool:
    lost = _code(report).upper() == "RUNTIME_RESOURCE_MISSING"
    return lost and _LOST_IN_RUNTIME.search(error) is not None


def _code(report: AgentReport) -> str:
    return report.metadata.get("failure_reason", "") or report.failure_code


def _cause(report: AgentReport, secrets: Collection[str]) -> str:
    """The text that says most: how it ended, else the last error, else what the agent says."""
    if _ENDED.search(report.message):
        return _with_stderr(report, secrets)
    runtime = report.metadata.get("last_runtime_error", "").strip()
    return _last_error(report) or runtime or report.message


def _with_stderr(report: AgentReport, secrets: Collection[str]) -> str:
    # Cleaned before it is cut: half a secret would not be recognised.
    stderr = without_values(report.metadata.get("container.stderr", ""), secrets).strip()
    if not stderr:
        return report.message
    return f"{report.message.strip().rstrip(':')}; stderr: {_tail(stderr)}"


def _tail(text: str) -> str:
    """The end of a log, from the beginning of a word, since a word may be a URL with a password."""
    if len(text) <= _STDERR_TAIL:
        return text
    words = text[-_STDERR_TAIL:].split(maxsplit=1)
    return "… " + (words[1] if len(words) > 1 else "")
