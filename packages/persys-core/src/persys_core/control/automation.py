"""Automation: suggestions of policies, carried out as the wishes of users are.

Decided here: which suggestions are carried out, that one is carried out once, and what its author
is told. What the action itself does is decided in ``control.admission``.

Decisions are remembered by this replica, bounded and for a while. At another replica, or after a
restart, a repeated suggestion meets the records that the first one left: the same desired state
changes nothing, a deletion goes on, and a retry is a fresh one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from attrs import frozen

from persys_core.control.admission_workloads import WorkloadAdmission
from persys_core.control.answers import AutomationDecision
from persys_core.control.events import EventPublisher
from persys_core.control.requests import ApplyWorkload, AutomationAction, AutomationSuggestion
from persys_core.model.errors import (
    FieldError,
    FrozenError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
)
from persys_core.model.event import EventType
from persys_core.model.ids import WorkloadId
from persys_core.model.states import DesiredState
from persys_core.ports.clock import Clock

__all__ = ["REMEMBERED", "REMEMBERED_FOR", "UNNAMED_REMEMBERED_FOR", "Automation"]

REMEMBERED = 10_000
REMEMBERED_FOR = timedelta(hours=1)
UNNAMED_REMEMBERED_FOR = timedelta(seconds=60)
"""Without an id, a repetition and the same idea once more look alike; only soon after it is taken
for a repetition, and only while nothing else was suggested for the workload."""

_NO_REPLICAS = (
    "replica updates are not supported by scheduler contract yet: a workload is one instance; apply"
    " further workloads instead"
)
_UNSUPPORTED = "unsupported automation action type"
_USED_ID = 'suggestion_id "{}" was used for another suggestion; give each one an id of its own'
_ACCEPTED = {
    AutomationAction.SET_DESIRED_STATE: "desired state change accepted",
    AutomationAction.RETRY_WORKLOAD: "retry accepted",
    AutomationAction.DELETE_WORKLOAD: "delete accepted",
}

_Subject: TypeAlias = tuple[WorkloadId, AutomationAction, DesiredState | None]
_MemoryKey: TypeAlias = tuple[str, str]


@frozen
class _Remembered:
    """A decision, what it was about, and until when it is the answer."""

    subject: _Subject
    decision: AutomationDecision
    until: datetime


class Automation:
    """Takes suggestions, one after another, so that a repeated one finds the first decided."""

    def __init__(
        self,
        workloads: WorkloadAdmission,
        events: EventPublisher,
        clock: Clock,
        require_writable: Callable[[], None],
    ) -> None:
        self._workloads = workloads
        self._events = events
        self._clock = clock
        self._require_writable = require_writable
        self._memory: OrderedDict[_MemoryKey, _Remembered] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def submit(self, suggestion: AutomationSuggestion) -> AutomationDecision:
        """Carry out ``suggestion`` or say why not; see ``AutomationApi.submit``."""
        _validate(suggestion)
        async with self._one_at_a_time:
            known = self._known(suggestion)
            if known is not None and known.subject == _subject(suggestion):
                return known.decision
            if known is not None and suggestion.suggestion_id:
                decision = self._decision(_USED_ID.format(suggestion.suggestion_id))
            else:
                decision = await self._decided_now(suggestion)
            self._tell(suggestion, decision)
            return decision

    # Deciding

    async def _decided_now(self, suggestion: AutomationSuggestion) -> AutomationDecision:
        try:
            self._require_writable()
            decision = await self._decide(suggestion)
        except FrozenError as error:
            # No decision about the suggestion: the same one may be accepted later.
            return self._decision(str(error))
        self._remember(suggestion, decision)
        return decision

    async def _decide(self, suggestion: AutomationSuggestion) -> AutomationDecision:
        try:
            refusal = await self._carry_out(suggestion)
        except (InvalidInputError, NotFoundError, RefusedError) as error:
            refusal = str(error)
        return self._decision(refusal, suggestion.action)

    async def _carry_out(self, suggestion: AutomationSuggestion) -> str:
        """Do it; the answer is why it is not done, empty where it is."""
        target = suggestion.target
        match suggestion.action:
            case AutomationAction.SET_DESIRED_STATE:
                wish = ApplyWorkload(target, desired_state=suggestion.desired_state)
                await self._workloads.apply(wish)
            case AutomationAction.RETRY_WORKLOAD:
                await self._workloads.retry(target)
            case AutomationAction.DELETE_WORKLOAD:
                await self._workloads.delete(target, force=False)
            case AutomationAction.SCALE_REPLICAS:
                return _NO_REPLICAS
            case AutomationAction.UNSUPPORTED:
                return _UNSUPPORTED
        return ""

    def _decision(
        self, refusal: str, action: AutomationAction = AutomationAction.UNSUPPORTED
    ) -> AutomationDecision:
        now = self._clock.now()
        if refusal:
            return AutomationDecision(False, "rejected", refusal, "", now)
        return AutomationDecision(True, "accepted", _ACCEPTED[action], str(action), now)

    # Remembering

    def _known(self, suggestion: AutomationSuggestion) -> _Remembered | None:
        found = self._memory.get(_key(suggestion))
        return found if found is not None and found.until > self._clock.now() else None

    def _remember(self, suggestion: AutomationSuggestion, decision: AutomationDecision) -> None:
        lifetime = REMEMBERED_FOR if suggestion.suggestion_id else UNNAMED_REMEMBERED_FOR
        until = self._clock.now() + lifetime
        # What was suggested without an id is over as soon as something else is suggested.
        self._memory.pop(("target", suggestion.target), None)
        self._memory.pop(_key(suggestion), None)
        self._memory[_key(suggestion)] = _Remembered(_subject(suggestion), decision, until)
        while len(self._memory) > REMEMBERED:
            self._memory.popitem(last=False)

    # Telling

    def _tell(self, suggestion: AutomationSuggestion, decision: AutomationDecision) -> None:
        applied, rejected = EventType.AUTOMATION_APPLIED, EventType.AUTOMATION_REJECTED
        details = {
            "suggestion_id": suggestion.suggestion_id,
            "policy_id": suggestion.policy_id,
            "policy_name": suggestion.policy_name,
            "action": str(suggestion.action),
            "desired_state": str(suggestion.desired_state or ""),
            "suggested_because": suggestion.reason,
        }
        self._events.publish(
            applied if decision.accepted else rejected,
            workload_id=suggestion.target,
            reason=decision.reason,
            details={name: text for name, text in details.items() if text},
        )


def _key(suggestion: AutomationSuggestion) -> _MemoryKey:
    if suggestion.suggestion_id:
        return "id", suggestion.suggestion_id
    return "target", suggestion.target


def _subject(suggestion: AutomationSuggestion) -> _Subject:
    return suggestion.target, suggestion.action, suggestion.desired_state


def _validate(suggestion: AutomationSuggestion) -> None:
    errors = []
    if not suggestion.target:
        errors.append(FieldError("suggestion.target_workload", "target_workload is required"))
    if suggestion.action is AutomationAction.SET_DESIRED_STATE:
        if suggestion.desired_state is None:
            errors.append(
                FieldError(
                    "suggestion.desired_state",
                    "is required for this action; accepted is Running or Stopped",
                )
            )
        elif suggestion.desired_state is DesiredState.DELETED:
            errors.append(
                FieldError("suggestion.desired_state", "suggest the deletion of the workload")
            )
    if errors:
        raise InvalidInputError(errors)
