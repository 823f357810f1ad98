"""What policies suggest."""

from __future__ import annotations

from persys_core.control.api import AutomationApi
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping.automation import decision_response, suggestion

__all__ = ["AutomationRpcs"]


class AutomationRpcs(control_pb2_grpc.AgentControlServicer):
    """SubmitAutomationSuggestion."""

    automation: AutomationApi

    async def SubmitAutomationSuggestion(
        self, request: pb.SubmitAutomationSuggestionRequest, context: Context
    ) -> pb.SubmitAutomationSuggestionResponse:
        """Carry out what a policy suggests, or say why not."""
        return decision_response(await self.automation.submit(suggestion(request)))
