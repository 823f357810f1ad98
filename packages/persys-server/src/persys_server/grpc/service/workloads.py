"""What users wish of workloads: apply, plan, delete, retry, and why.

Decided here: that a wish which names an unknown workload, or one that is being deleted, is answered
in the response and not by a status code. The contract has fields for it, and existing gateways
take any status code for a broken scheduler (reference defect I1). A plan, which no older client
asks for, is refused with status codes.
"""

from __future__ import annotations

from persys_core.control.api import AdmissionApi, QueriesApi
from persys_core.model.errors import NotFoundError, RefusedError, StalePlanError
from persys_core.model.spec import secret_values
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import workloads_in
from persys_server.grpc.mapping.explanation_out import explanation
from persys_server.grpc.mapping.plans_out import plan_response
from persys_server.grpc.mapping.workloads_out import apply_response, retry_response
from persys_server.grpc.service.waiting import caught_up
from persys_server.observability.logging import request_secrets

__all__ = ["WorkloadRpcs"]


class WorkloadRpcs(control_pb2_grpc.AgentControlServicer):
    """ApplyWorkload, PlanWorkload, DeleteWorkload, RetryWorkload and ExplainWorkload."""

    admission: AdmissionApi
    queries: QueriesApi

    async def ApplyWorkload(
        self, request: pb.ApplyWorkloadRequest, context: Context
    ) -> pb.ApplyWorkloadResponse:
        """Store a wish and place it if possible."""
        wish = workloads_in.apply_workload(request)
        if wish.spec is not None:
            request_secrets.set(secret_values(wish.spec))
        try:
            return apply_response(await self.admission.apply_workload(wish))
        except StalePlanError as error:
            # Nothing is wrong with the spec, and the contract has no word for it.
            return pb.ApplyWorkloadResponse(success=False, error_message=str(error))
        except (NotFoundError, RefusedError) as error:
            return pb.ApplyWorkloadResponse(
                success=False, failure_reason=pb.INVALID_SPEC, error_message=str(error)
            )

    async def PlanWorkload(
        self, request: pb.PlanWorkloadRequest, context: Context
    ) -> pb.PlanWorkloadResponse:
        """What ApplyWorkload would do; nothing is stored."""
        asked = workloads_in.plan_request(request)
        if asked.wish.spec is not None:
            request_secrets.set(secret_values(asked.wish.spec))
        reading = self.queries.plan(
            asked.wish, max_examples=asked.max_examples, at_least=asked.at_least
        )
        return plan_response(*await caught_up(reading, asked.at_least, context))

    async def DeleteWorkload(
        self, request: pb.DeleteWorkloadRequest, context: Context
    ) -> pb.DeleteWorkloadResponse:
        """Begin a deletion."""
        workload_id = workloads_in.named_workload(request.workload_id)
        try:
            answer = await self.admission.delete_workload(workload_id, force=request.force)
        except (NotFoundError, RefusedError) as error:
            return pb.DeleteWorkloadResponse(success=False, error_message=str(error))
        return pb.DeleteWorkloadResponse(success=True, outcome=answer.outcome)

    async def RetryWorkload(
        self, request: pb.RetryWorkloadRequest, context: Context
    ) -> pb.RetryWorkloadResponse:
        """Forget old failures and try again now."""
        workload_id = workloads_in.named_workload(request.workload_id)
        try:
            left = await self.admission.retry_workload(
                workload_id, discard_local=request.discard_local
            )
        except (NotFoundError, RefusedError) as error:
            return pb.RetryWorkloadResponse(accepted=False, message=str(error))
        return retry_response(left)

    async def ExplainWorkload(
        self, request: pb.ExplainWorkloadRequest, context: Context
    ) -> pb.ExplainWorkloadResponse:
        """Why a workload is where it is, or nowhere."""
        asked = workloads_in.explain_request(request)
        reading = self.queries.get_workload(asked.id, at_least=asked.at_least)
        _, fresh = await caught_up(reading, asked.at_least, context)
        found = await self.queries.explain(asked.id, max_examples=asked.max_examples)
        return pb.ExplainWorkloadResponse(
            explanation=explanation(found),
            stale=fresh.stale,
            age_seconds=fresh.age.total_seconds(),
        )
