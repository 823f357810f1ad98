"""The Agents port over gRPC: `persys.agent.v1`, as every agent in the field speaks it."""

from persys_adapters.agent_grpc.agents import GrpcAgents
from persys_adapters.agent_grpc.channels import ChannelOpener, plain_opener, tls_opener

__all__ = ["ChannelOpener", "GrpcAgents", "plain_opener", "tls_opener"]
