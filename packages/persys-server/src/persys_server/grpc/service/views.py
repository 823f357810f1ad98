"""What everyone may look at: nodes, workloads and the cluster's summary."""

from __future__ import annotations

from persys_core.control.api import QueriesApi
from persys_core.model.states import NodeStatus, WorkloadStatus
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.grpc.context import Context
from persys_server.grpc.mapping import nodes_in, nodes_out, workloads_in, workloads_out
from persys_server.grpc.mapping.drifts_out import drift_list
from persys_server.grpc.mapping.summary_out import summary_response
from persys_server.grpc.service.waiting import caught_up

__all__ = ["ViewRpcs"]


class ViewRpcs(control_pb2_grpc.AgentControlServicer):
    """ListNodes, GetNode, ListWorkloads, GetWorkload, ListDrifts and GetClusterSummary."""

    queries: QueriesApi

    async def ListNodes(
        self, request: pb.ListNodesRequest, context: Context
    ) -> pb.ListNodesResponse:
        """Nodes, sorted by id."""
        at_least = request.min_revision
        nodes_in.list_filters(at_least, {"status": (request.status, NodeStatus)})
        reading = self.queries.list_nodes(status=request.status.strip(), at_least=at_least)
        return nodes_out.node_list(*await caught_up(reading, at_least, context))

    async def GetNode(self, request: pb.GetNodeRequest, context: Context) -> pb.GetNodeResponse:
        """One node."""
        node_id, at_least = nodes_in.read_node(request)
        reading = self.queries.get_node(node_id, at_least=at_least)
        return nodes_out.node_response(*await caught_up(reading, at_least, context))

    async def ListWorkloads(
        self, request: pb.ListWorkloadsRequest, context: Context
    ) -> pb.ListWorkloadsResponse:
        """Workloads, sorted by id."""
        at_least = request.min_revision
        words = {"status": (request.status, WorkloadStatus)}
        nodes_in.list_filters(at_least, words, node_id=request.node_id)
        reading = self.queries.list_workloads(
            node_id=request.node_id, status=request.status.strip(), at_least=at_least
        )
        return workloads_out.workload_list(*await caught_up(reading, at_least, context))

    async def GetWorkload(
        self, request: pb.GetWorkloadRequest, context: Context
    ) -> pb.GetWorkloadResponse:
        """One workload."""
        asked = workloads_in.read_workload(request)
        reading = self.queries.get_workload(asked.id, at_least=asked.at_least)
        return workloads_out.workload_response(*await caught_up(reading, asked.at_least, context))

    async def ListDrifts(
        self, request: pb.ListDriftsRequest, context: Context
    ) -> pb.ListDriftsResponse:
        """The drifts that stand, sorted by node and workload."""
        at_least = request.min_revision
        nodes_in.list_filters(at_least, {}, node_id=request.node_id)
        reading = self.queries.list_drifts(node_id=request.node_id, at_least=at_least)
        return drift_list(*await caught_up(reading, at_least, context))

    async def GetClusterSummary(
        self, request: pb.GetClusterSummaryRequest, context: Context
    ) -> pb.GetClusterSummaryResponse:
        """Counts per state, mode and leader."""
        at_least = request.min_revision
        nodes_in.list_filters(at_least, {})
        reading = self.queries.summary(at_least=at_least)
        return summary_response(*await caught_up(reading, at_least, context))
