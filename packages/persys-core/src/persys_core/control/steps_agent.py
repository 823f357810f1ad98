"""Steps that speak with an agent: ask, apply, delete. Each call follows its committed intent."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import evolve

from persys_core.control.case import Case
from persys_core.control.observations import Observation
from persys_core.control.steps_record import RecordSteps
from persys_core.control.term import AGAIN, Next, Term
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.states import DesiredState
from persys_core.model.workload import IntentAction
from persys_core.ports.agents import (
    Accepted,
    ApplyRequest,
    DeleteRequest,
    NotFound,
    Refused,
    Unreachable,
)
from persys_core.reconcile import transitions
from persys_core.reconcile.reapply import released
from persys_core.reconcile.situation import Outlook
from persys_core.retry.failure import classify_failure, infrastructure_failure
from persys_core.retry.machine import effective
from persys_core.volumes.affinity import has_local_data
from persys_core.volumes.disks import spec_with_disks
from persys_core.volumes.holds import removes_data
from persys_core.volumes.outcome import Outcome

__all__ = ["AgentSteps", "poll_delay"]

_MAY_HIDE_A_FAILURE = (AgentState.UNKNOWN, AgentState.STOPPED)
REFUSED_AGAIN_AFTER = timedelta(seconds=10)


class AgentSteps:
    """The steps of one term."""

    def __init__(self, term: Term, records: RecordSteps) -> None:
        self._term = term
        self._records = records

    async def inquire(self, case: Case) -> Next:
        """Ask the agent about this workload; the answer decides what is next."""
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        assert case.node is not None, "this is a bug: only an assigned workload is asked about"
        asked_at = self._term.now()
        outcome = await self._term.calls.status(case.node, case.workload.id)
        match outcome:
            case AgentReport():
                report = await self._with_cause(case, _of_the_open_call(case, outcome))
                self._answered(case, report, asked_at)
                return AGAIN
            case NotFound():
                self._answered(case, None, asked_at)
                return AGAIN
            case Refused(message):
                return await self._records.waits(
                    case, "agent_refused", message, REFUSED_AGAIN_AFTER
                )
            case Unreachable(message):
                return await self._records.waits(
                    case,
                    "agent_unreachable",
                    f"agent of {case.node_id}: {message}",
                    self._blocked(case) or REFUSED_AGAIN_AFTER,
                )

    def _answered(self, case: Case, report: AgentReport | None, asked_at: datetime) -> None:
        now = self._term.now()
        self._saw(case, Observation(case.node_id, report, asked_at, by_query=True, heard_at=now))

    async def _with_cause(self, case: Case, report: AgentReport) -> AgentReport:
        """``report`` with the agent's last error where it hides a failed apply.

        Some failures leave nothing in the status but *container not found*, and their cause only
        in the task list (decisions §2.2).
        """
        hides = report.state in _MAY_HIDE_A_FAILURE and "last_error" not in report.metadata
        at_rest = report.task_status not in (TaskStatus.PENDING, TaskStatus.RUNNING)
        open_call = case.outlook is Outlook.RUN and case.status.intent is not None
        if case.node is None or not (hides and at_rest and open_call):
            return report
        error = await self._term.calls.last_error(case.node, case.workload.id)
        if not error:
            return report
        return evolve(report, metadata={**report.metadata, "last_error": error})

    async def start(self, case: Case) -> Next:
        """Send the workload, to run."""
        return await self._apply(case, DesiredState.RUNNING)

    async def stop(self, case: Case) -> Next:
        """Send the workload, to stop."""
        return await self._apply(case, DesiredState.STOPPED)

    async def _apply(self, case: Case, desired: DesiredState) -> Next:
        """Announce the call, then make it."""
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        action = (
            IntentAction.APPLY_RUNNING
            if desired is DesiredState.RUNNING
            else IntentAction.APPLY_STOPPED
        )
        if not await self._announce(case, action):
            return AGAIN
        return await self.send_apply(case, desired)

    async def tell_again(self, case: Case) -> Next:
        """Send what runs as wished, so that an agent that lost its state knows of it. It goes on
        running whatever comes of that, so nothing of it counts as a failure."""
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        if not await self._announce(case, IntentAction.APPLY_RUNNING, runs=True):
            return AGAIN
        outcome = await self._sent(case, DesiredState.RUNNING)
        if isinstance(outcome, Accepted):
            return self._term.config.timing.poll_interval
        return await self._not_taken(case, outcome)

    async def _sent(self, case: Case, desired: DesiredState) -> Accepted | Refused | Unreachable:
        assert case.node is not None, "this is a bug: only an assigned workload is sent"
        request = ApplyRequest(
            case.workload.id,
            case.workload.revision_id,
            desired,
            spec_with_disks(case.workload, Outcome(self._term.view)),
            self._term.epoch(case.node_id),
        )
        return await self._term.calls.apply(case.node, request)

    async def send_apply(self, case: Case, desired: DesiredState) -> Next:
        """Make the apply call that a commit announced."""
        outcome = await self._sent(case, desired)
        now = self._term.now()
        match outcome:
            case Accepted():
                return self._term.config.timing.poll_interval
            case Refused() | Unreachable() if desired is DesiredState.STOPPED:
                return await self._not_taken(case, outcome)
            case Refused(message, code):
                return await self._records.failed(
                    case.workload.id, classify_failure(code, message, now)
                )
            case Unreachable(message):
                return await self._records.failed(
                    case.workload.id,
                    infrastructure_failure("agent_unreachable", message, now),
                )

    async def delete(self, case: Case) -> Next:
        """Announce the delete, then make it; whether it took effect is asked afterwards."""
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        if not await self._announce(case, IntentAction.DELETE):
            return AGAIN
        assert case.node is not None, "this is a bug: only an assigned workload is deleted there"
        asked_at = self._term.now()
        # Read after the announcement, which settled whose data goes (and compared who uses it).
        data = removes_data(
            case.node_id, case.workload.id, case.workload.uid, Outcome(self._term.view)
        )
        epoch = self._term.epoch(case.node_id)
        request = DeleteRequest(case.workload.id, epoch, delete_volumes=data)
        outcome = await self._term.calls.delete(case.node, request)
        match outcome:
            case NotFound():
                self._saw(case, Observation(case.node_id, None, asked_at, by_query=True))
                return AGAIN
            case Accepted():
                return self._term.config.timing.poll_interval
            case Refused() | Unreachable():
                return await self._not_taken(case, outcome)

    async def _not_taken(self, case: Case, outcome: Refused | Unreachable) -> Next:
        """What is no failure of the workload was not taken; unanswered, it may still arrive."""
        if isinstance(outcome, Unreachable):
            await self._records.unanswered(case.workload.id)
        return self._blocked(case) or REFUSED_AGAIN_AFTER

    async def _announce(self, case: Case, action: IntentAction, *, runs: bool = False) -> bool:
        """Commit the intent of a call; one about what ``runs`` leaves its status as it is."""
        # The call ends the run that may have made the budget new, so that is noted with it.
        retry = effective(
            case.status.retry, case.status.settled_since, self._term.config.retry, case.now
        )
        policy = self._term.config.reapply
        reapply = case.status.reapply
        last_sent = reapply.last_apply_at
        is_long_ago = last_sent is not None and case.now - last_sent > 2 * policy.cap
        if case.status.settled_since is not None and (is_long_ago or not runs):
            # How often it was told of what ran says nothing of a new loss, nor of a start.
            reapply = released(reapply)
        announced = transitions.call_announced(
            evolve(case.status, retry=retry, reapply=reapply),
            case.workload,
            case.intent(action, self._term),
            policy,
            local_data=has_local_data(case.workload.spec),
        )
        if runs:
            before = case.status
            announced = evolve(announced, status=before.status, settled_since=before.settled_since)
        return await self._term.commit(case.transaction(announced))

    def _blocked(self, case: Case) -> timedelta | None:
        until = self._term.reach.blocked_until(case.node_id)
        return None if until is None else self._term.until(until, REFUSED_AGAIN_AFTER)

    def _saw(self, case: Case, observation: Observation) -> None:
        self._term.observations.record(case.workload.id, observation)


def _of_the_open_call(case: Case, report: AgentReport) -> AgentReport:
    """``report`` with the revision that it is about, where the agent does not say it.

    An agent that gives up before it keeps anything of a workload, since it lacks the runtime of
    its type, shows only how its newest task ended (reference defect C11). That task is the open
    call's if the agent answered that call.
    """
    intent = case.status.intent
    if report.revision_id or report.state is not AgentState.FAILED:
        return report
    if intent is None or intent.unanswered or case.outlook is not Outlook.RUN:
        return report
    return evolve(report, revision_id=intent.revision_id)


def poll_delay(case: Case, term: Term) -> timedelta:
    """When to ask again after a call: often at first, then every ten seconds."""
    interval = term.config.timing.poll_interval
    intent = case.status.intent
    if intent is None:
        return interval
    return min(max((case.now - intent.committed_at) / 4, interval), interval * 10)
