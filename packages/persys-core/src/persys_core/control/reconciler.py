"""Reconciler: one look at one key. Reads its facts, has the table decide, performs the step.

Nothing is decided here. A step that changed something is followed by another look at once; the
number of looks per visit is bounded, so that one workload cannot hold a worker for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta

from attrs import evolve

from persys_core.control.case import Case, load_case
from persys_core.control.committer import LeadershipLostError
from persys_core.control.outcomes import note_outcome
from persys_core.control.steps_agent import AgentSteps, poll_delay
from persys_core.control.steps_place import PlaceSteps
from persys_core.control.steps_record import RecordSteps
from persys_core.control.term import AGAIN, Next, Stays, Term
from persys_core.control.tombstones import TombstoneSteps
from persys_core.control.work import Work
from persys_core.model.errors import FrozenError
from persys_core.model.remarks import Remark, remark_of
from persys_core.model.states import DesiredState, ObservedState
from persys_core.model.workload import Failure, FailureKind
from persys_core.nodes.leaving import Leaving
from persys_core.placement.ledger import LedgerError
from persys_core.ports.cluster_store import StoreUnavailableError
from persys_core.ports.tracer import Span, SpanName
from persys_core.reconcile.actions import Action
from persys_core.reconcile.decide import Rule, decide
from persys_core.retry.failure import infrastructure_failure

__all__ = ["Reconciler"]

Step = Callable[[Case], Awaitable[Next]]

LOOKS_PER_VISIT = 12
AFTER_TROUBLE = timedelta(seconds=5)


class Reconciler:
    """The work queue's handler for one term."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._records = RecordSteps(term)
        self._agents = AgentSteps(term, self._records)
        self._places = PlaceSteps(term)
        self._tombstones = TombstoneSteps(term)
        self._performers = self._steps()

    async def handle(self, work: Work) -> None:
        """Look at ``work`` until nothing is left to do now, and come back when it is due.

        The store or the leadership may be lost at any point: then nothing more is done, and
        whoever leads once the store is back begins with a look at everything unsettled.
        """
        if not self._term.may_act():
            # Nothing is forgotten over a freeze: what was nudged meanwhile waits for its end.
            self._term.requeue(work, AFTER_TROUBLE)
            return
        try:
            with self._term.looking_at(work), self._span(work) as span:
                following = await self._look(work, span)
        except (StoreUnavailableError, FrozenError):
            following = AFTER_TROUBLE
        except LeadershipLostError:
            return
        if isinstance(following, timedelta):
            self._term.requeue(work, following)

    def _span(self, work: Work) -> AbstractContextManager[Span]:
        return self._term.ports.observer.span(
            SpanName.RECONCILE_WORK, workload_id=work.workload_id, node_id=work.node_id
        )

    async def _look(self, work: Work, span: Span) -> Next:
        for _ in range(LOOKS_PER_VISIT):
            try:
                following = await self._once(work, span)
            except LedgerError as error:
                # A view that is late may contradict itself; one that is not is a bug.
                if await self._term.confirms(error.read):
                    raise
                following = AGAIN
            if following is not AGAIN:
                return following
        return self._term.config.timing.poll_interval

    async def _once(self, work: Work, span: Span) -> Next:
        if not self._term.takes_up(work):
            # Whoever owns the node looks at it: the change that made it theirs tells them, too.
            return None
        if work.node_id:
            return await self._tombstones.see_through(work)
        case = load_case(self._term, work.workload_id)
        if case is None:
            self._term.observations.forget(work.workload_id)
            return None
        rule, following = await self._perform(case)
        note_outcome(self._term, case, rule)
        span.ends_as(rule.action.value)
        return following

    async def _perform(self, case: Case) -> tuple[Rule, Next]:
        rule = decide(case.situation)
        if rule.action is Action.LEAVE:
            following = await self._places.leave(case)
            if not isinstance(following, Stays):
                return rule, following
            stays = evolve(case.situation, leaving=Leaving.STAYS)
            case = evolve(case, situation=stays)
            rule = decide(stays)
        step = self._performers.get(rule.action)
        return rule, await step(case) if step else self._wait(rule.action, case)

    def _steps(self) -> Mapping[Action, Step]:
        """What performs each action; the others only wait."""
        records, agents, places = self._records, self._agents, self._places
        return {
            Action.SETTLE: records.settle,
            Action.COMPLETE: self._complete,
            Action.RECORD_FAILURE: self._count_failure,
            Action.AWAIT_START: self._await_start,
            Action.FINALIZE_DELETE: records.finalize_delete,
            Action.ABANDON_DELETE: records.abandon_delete,
            Action.ASSIGN: places.assign,
            Action.RECHARGE: places.assign,
            Action.OUTGROW: places.outgrow,
            Action.RESCHEDULE: places.relocate,
            Action.UNASSIGN: places.unassign,
            Action.AWAIT_NODE: places.await_node,
            Action.AWAIT_OLD_COPY: places.await_volume,
            Action.INQUIRE: agents.inquire,
            Action.CONFIRM_DELETE: agents.inquire,
            Action.APPLY_RUNNING: agents.start,
            Action.TELL_AGAIN: agents.tell_again,
            Action.APPLY_STOPPED: agents.stop,
            Action.DELETE: agents.delete,
        }

    def _wait(self, action: Action, case: Case) -> Next:
        """When to look again at what only time can change."""
        poll = poll_delay(case, self._term)
        match action:
            case Action.NO_ACTION:
                return None
            case Action.AWAIT_INTENT:
                deadline = case.status.intent.deadline if case.status.intent else None
                return self._term.until(deadline, poll)
            case Action.BACKOFF_WAIT:
                return self._term.until(case.status.retry.next_at, poll)
            case Action.REAPPLY_WAIT if case.status.intent is None:
                return self._term.until(case.status.reapply.next_at, poll)
            case _:
                return poll

    async def _count_failure(self, case: Case) -> Next:
        return await self._records.failed(case.workload.id, self._failure(case))

    async def _await_start(self, case: Case) -> Next:
        is_done = await self._records.hear(case)
        return self._wait(Action.AWAIT_START, case) if is_done else AGAIN

    async def _complete(self, case: Case) -> Next:
        following = await self._records.complete(case)
        if following is AGAIN:
            return AGAIN
        return await self._agents.send_apply(case, DesiredState.STOPPED)

    def _failure(self, case: Case) -> Failure:
        seen = case.seen
        if seen is not None and seen.sighting.failure is not None:
            return seen.sighting.failure
        if case.situation.ended_early:
            return self._short_run(case)
        timeout = self._term.config.apply_timeout(case.workload.spec.type)
        state = case.situation.observed.value
        text = f"still {state} {timeout.total_seconds():g} s after it was sent"
        said = case.seen.sighting.message if case.seen else ""
        if case.situation.observed is ObservedState.UNKNOWN:
            # The node cannot say what became of it, for which the workload is not to blame.
            return infrastructure_failure("runtime_silent", f"{text}: {said}", case.now)
        if remark_of(said) is not Remark.NONE:
            text += f": {said}"
        return Failure("start_timeout", text, FailureKind.WORKLOAD, case.now)

    def _short_run(self, case: Case) -> Failure:
        said = case.seen.sighting.message if case.seen else ""
        since = case.status.settled_since
        if since is None:
            text = "it did not come to run in its time"
        else:
            text = f"it stopped by itself after {(case.now - since).total_seconds():.0f} s"
        return Failure("exited", f"{text}: {said}", FailureKind.WORKLOAD, case.now)
