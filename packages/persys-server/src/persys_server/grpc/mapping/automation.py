"""Suggestions of automation in, decisions out.

Decided here: a suggestion without a target or an action is bad input; an action with a number that
this release does not know is a suggestion that the core rejects, as older schedulers did.
"""

from __future__ import annotations

from persys_core.control.answers import AutomationDecision
from persys_core.control.requests import AutomationAction, AutomationSuggestion
from persys_core.model.event import capped
from persys_core.model.states import DesiredState
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import desired_state_of
from persys_server.grpc.mapping.fields import Fields
from persys_server.grpc.mapping.times import timestamp

__all__ = ["decision_response", "suggestion"]

_ACTIONS = {
    pb.AUTOMATION_ACTION_SET_DESIRED_STATE: AutomationAction.SET_DESIRED_STATE,
    pb.AUTOMATION_ACTION_RETRY_WORKLOAD: AutomationAction.RETRY_WORKLOAD,
    pb.AUTOMATION_ACTION_DELETE_WORKLOAD: AutomationAction.DELETE_WORKLOAD,
    pb.AUTOMATION_ACTION_SCALE_REPLICAS: AutomationAction.SCALE_REPLICAS,
}


def suggestion(message: pb.SubmitAutomationSuggestionRequest) -> AutomationSuggestion:
    """What is suggested; raises ``InvalidInputError`` that names every wrong field."""
    fields = Fields()
    if not message.HasField("suggestion"):
        fields.add("suggestion", "suggestion is required")
        fields.finish()
    place, given = fields.inside("suggestion"), message.suggestion
    action = _action(place, given)
    read = AutomationSuggestion(
        target=place.existing_id("target_workload", given.target_workload),
        action=action,
        suggestion_id=place.text("suggestion_id", given.suggestion_id, at_most=253),
        policy_id=place.text("policy_id", given.policy_id, at_most=253),
        policy_name=place.text("policy_name", given.policy_name, at_most=253),
        desired_state=_desired_state(place, given, action),
        reason=capped(place.reason("reason", given.reason, at_most=4096, lines=True)),
    )
    fields.finish()
    return read


def decision_response(decision: AutomationDecision) -> pb.SubmitAutomationSuggestionResponse:
    """The answer to SubmitAutomationSuggestion."""
    return pb.SubmitAutomationSuggestionResponse(
        accepted=decision.accepted,
        decision=decision.decision,
        reason=decision.reason,
        applied_action=decision.applied_action,
        decided_at=timestamp(decision.decided_at),
    )


def _action(fields: Fields, given: pb.AutomationSuggestion) -> AutomationAction:
    if given.action_type == pb.AUTOMATION_ACTION_TYPE_UNSPECIFIED:
        names = ", ".join(map(pb.AutomationActionType.Name, sorted(_ACTIONS)))
        fields.add("action_type", f"action_type is required; accepted is one of {names}")
    return _ACTIONS.get(given.action_type, AutomationAction.UNSUPPORTED)


def _desired_state(
    fields: Fields, given: pb.AutomationSuggestion, action: AutomationAction
) -> DesiredState | None:
    """Only the action that sets it reads it; others may carry anything there."""
    if action is not AutomationAction.SET_DESIRED_STATE:
        return None
    if not given.desired_state.strip():
        fields.add(
            "desired_state", "desired_state is required for this action; accepted is Running or"
            " Stopped"
        )  # fmt: skip
    return desired_state_of(fields, given.desired_state)
