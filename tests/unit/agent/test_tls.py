"""Mutual TLS between scheduler and agent, with certificates made for the test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
import trustme

from persys_adapters.agent_grpc import GrpcAgents, plain_opener, tls_opener
from persys_agent.options import TlsFiles
from persys_agent.process import channel_credentials, server_credentials
from persys_agent.simulated import FleetOptions, SimulatedFleet
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.ports.agents import Unreachable

TIMEOUT = timedelta(seconds=5)


def issue(folder: Path, name: str) -> TlsFiles:
    """A new authority and one certificate for 127.0.0.1 under it."""
    made = folder / name
    made.mkdir()
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(made / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(made / "cert.pem"))
    pair.private_key_pem.write_to_path(str(made / "key.pem"))
    return TlsFiles(*(str(made / file) for file in ("ca.pem", "cert.pem", "key.pem")))


@pytest.mark.asyncio
async def test_agents_are_called_over_mutual_tls_only(tmp_path: Path) -> None:
    """The right certificate is let in; none, and one of another authority, are not."""
    ours, foreign = issue(tmp_path, "ours"), issue(tmp_path, "foreign")
    options = FleetOptions(server_credentials=server_credentials(ours))
    async with SimulatedFleet(options) as fleet:
        endpoint = fleet.nodes()[0].endpoint
        node = Node("sim-1", Resources(), endpoint, frozenset(), datetime(2026, 1, 1, tzinfo=UTC))
        agents = GrpcAgents(plain_opener())
        assert isinstance(await agents.list(node, TIMEOUT), Unreachable)
        agents.reopen(tls_opener(_mixed(ours, foreign)))
        assert isinstance(await agents.list(node, TIMEOUT), Unreachable)
        agents.reopen(tls_opener(channel_credentials(ours)))
        assert await agents.list(node, TIMEOUT) == ()
        await agents.aclose()


def _mixed(trusted: TlsFiles, shown: TlsFiles) -> grpc.ChannelCredentials:
    return channel_credentials(TlsFiles(trusted.ca, shown.cert, shown.key))
