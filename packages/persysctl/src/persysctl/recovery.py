"""The calls by which an operator leads the scheduler out of recovery mode."""

from __future__ import annotations

from collections.abc import Sequence

from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persysctl.calls import Ask

__all__ = ["Recovery"]


class Recovery:
    """Part of ``client.Client``, whose channel, deadline and errors these calls share."""

    def __init__(self, stub: control_pb2_grpc.AgentControlAsyncStub, ask: Ask) -> None:
        self._stub = stub
        self._ask = ask

    async def import_from_agents(
        self, nodes: Sequence[str], reason: str, *, dry_run: bool
    ) -> pb.ImportFromAgentsResponse:
        """Rebuild records from what agents run, or say what that would do."""
        request = pb.ImportFromAgentsRequest(dry_run=dry_run, node_ids=nodes, reason=reason)
        return await self._ask(self._stub.ImportFromAgents, request)

    async def acknowledge(self, reason: str) -> pb.AcknowledgeEmptyResponse:
        """Take the store as it is."""
        request = pb.AcknowledgeEmptyRequest(reason=reason)
        return await self._ask(self._stub.AcknowledgeEmpty, request)
