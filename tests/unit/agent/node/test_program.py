from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from datetime import timedelta
from pathlib import Path

import grpc.aio
import pytest
import trustme

from persys_agent.host.facts import HostFacts
from persys_agent.node.program import node_options, run_node
from persys_agent.node.serving import PortTakenError
from persys_agent.runtimes.factory import RuntimeChoice
from persys_agent.settings import NodeSettings, Places, load_settings
from persys_agent.state.lock import StateError
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.aio import agent_service_stub
from persys_proto.control.v1 import control_pb2 as control
from persys_proto.control.v1 import control_pb2_grpc
from tests.unit.agent.bench import apply_message

MEMORY = RuntimeChoice.MEMORY
FACTS = HostFacts("host", "0123456789abcdef", "", "linux", "amd64", 8000, 16_000, 100)


def settings_of(folder: Path, **changed: str) -> NodeSettings:
    """Settings of a node on free ports with its state in ``folder``, alone and without TLS."""
    environment = {
        "PERSYS_GRPC_ADDR": "127.0.0.1",
        "PERSYS_GRPC_PORT": "0",
        "PERSYS_METRICS_PORT": "0",
        "PERSYS_TLS_ENABLED": "false",
        "PERSYS_STANDALONE": "true",
        "PERSYS_NODE_ID": "n1",
        **changed,
    }
    places = Places.of(is_root=False, home=folder, working=folder)
    return load_settings(environment, places=places)


def test_the_settings_reach_the_node(tmp_path: Path) -> None:
    """Names, reserve, limits and labels are those of the settings, the size is the machine's."""
    settings = settings_of(
        tmp_path,
        PERSYS_NODE_ID="auto",
        PERSYS_CLUSTER_ID="c1",
        PERSYS_NODE_REGION="eu",
        PERSYS_HOST_RESERVE_MEMORY_MB="512",
        PERSYS_STOP_GRACE="7s",
        PERSYS_TASK_WORKERS="3",
        PERSYS_STANDALONE="false",
        PERSYS_STOP_AFTER="2m",
    )
    options = node_options(settings, FACTS)
    assert (options.node_id, options.cluster_id) == ("host-0123456789ab", "c1")
    assert (options.size.cpu_millicores, options.size.memory_mb) == (8000, 16_000)
    assert options.root_pool.total_gb == 100
    assert options.reserved.memory_mb == 512
    assert dict(options.labels) == {"os": "linux", "arch": "amd64", "region": "eu"}
    assert options.stop_grace == timedelta(seconds=7)
    assert options.workers == 3
    assert options.stop_after == timedelta(minutes=2)


def test_a_node_alone_fences_nothing(tmp_path: Path) -> None:
    """Nobody could have moved its work; and the fence is off unless it is asked for."""
    alone = settings_of(tmp_path, PERSYS_STOP_AFTER="2m")
    assert node_options(alone, FACTS).stop_after is None
    assert node_options(settings_of(tmp_path, PERSYS_STANDALONE="false"), FACTS).stop_after is None


@pytest.mark.asyncio
async def test_a_node_serves_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    """A second start on the same state knows the workload of the first."""
    for is_first in (True, False):
        async with (
            run_node(settings_of(tmp_path), MEMORY) as served,
            grpc.aio.insecure_channel(served.endpoint) as channel,
        ):
            stub = agent_service_stub(channel)
            if is_first:
                assert (await stub.ApplyWorkload(apply_message(stopped=True))).applied
            listed = await stub.ListWorkloads(wire.ListWorkloadsRequest())
            assert [each.id for each in listed.workloads] == ["w1"]
        assert served.loops.errors == 0


@pytest.mark.asyncio
async def test_health_and_metrics_are_served(tmp_path: Path) -> None:
    """/health says healthy, and the page counts the workloads by state (A12)."""
    with_port = settings_of(tmp_path, PERSYS_METRICS_PORT=str(_free_port()))
    address = f"http://127.0.0.1:{with_port.metrics_port}"
    async with run_node(with_port, MEMORY):
        health = json.loads(await asyncio.to_thread(_read, f"{address}/health"))
        assert health["status"] == "healthy"
        assert health["runtimes"]["container"] == "healthy"
        page = await asyncio.to_thread(_read, f"{address}/metrics")
    assert 'persys_agent_workload_count{state="running",type="container"} 0.0' in page
    assert 'persys_agent_runtime_health_status{runtime_type="container"} 1.0' in page


@pytest.mark.asyncio
async def test_what_is_taken_ends_the_start(tmp_path: Path) -> None:
    """The state of another agent, and a port of somebody else, with what to do about it."""
    async with run_node(settings_of(tmp_path), MEMORY) as served:
        with pytest.raises(StateError, match="in use by process"):
            async with run_node(settings_of(tmp_path), MEMORY):
                pass
        other = settings_of(tmp_path / "other", PERSYS_GRPC_PORT=str(served.port))
        with pytest.raises(PortTakenError, match="choose another grpc_addr or grpc_port"):
            async with run_node(other, MEMORY):
                pass


def _issue(authority: trustme.CA, folder: Path) -> None:
    pair = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    pair.private_key_pem.write_to_path(str(folder / "key.pem"))


def _credentials(authority: trustme.CA) -> grpc.ChannelCredentials:
    pair = authority.issue_cert("persysctl")
    return grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(),
        pair.private_key_pem.bytes(),
        pair.cert_chain_pems[0].bytes(),
    )


@pytest.mark.asyncio
async def test_certificates_are_replaced_without_a_restart(tmp_path: Path) -> None:
    """A caller of the new authority is let in once the files are replaced, and not before."""
    old, new = trustme.CA(), trustme.CA()
    _issue(old, tmp_path)
    settings = settings_of(
        tmp_path,
        PERSYS_TLS_ENABLED="true",
        PERSYS_TLS_CERT=str(tmp_path / "cert.pem"),
        PERSYS_TLS_KEY=str(tmp_path / "key.pem"),
        PERSYS_TLS_CA=str(tmp_path / "ca.pem"),
    )

    async def answers(authority: trustme.CA, endpoint: str) -> bool:
        async with grpc.aio.secure_channel(endpoint, _credentials(authority)) as channel:
            try:
                await agent_service_stub(channel).HealthCheck(wire.HealthCheckRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                return False
            return True

    async with run_node(settings, MEMORY) as served:
        assert await answers(old, served.endpoint)
        assert not await answers(new, served.endpoint)
        _issue(new, tmp_path)
        assert await answers(new, served.endpoint)
        assert not await answers(old, served.endpoint)


class _Registry(control_pb2_grpc.AgentControlServicer):
    """Takes every node in, and keeps what it said."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[control.RegisterNodeRequest] = asyncio.Queue()

    async def RegisterNode(
        self, request: control.RegisterNodeRequest, context: object
    ) -> control.RegisterNodeResponse:
        self.told.put_nowait(request)
        return control.RegisterNodeResponse(accepted=True)


@pytest.mark.asyncio
async def test_only_a_node_at_a_fixed_port_claims_its_id(tmp_path: Path) -> None:
    """With any port it has another endpoint at each start, and would have to wait for itself."""
    registry, server = _Registry(), grpc.aio.server()
    control_pb2_grpc.add_AgentControlServicer_to_server(registry, server)
    scheduler = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    calls = {
        "PERSYS_STANDALONE": "false", "PERSYS_SCHEDULER_INSECURE": "true",
        "PERSYS_SCHEDULER_ADDR": scheduler,
    }  # fmt: skip
    said = []
    for port in (0, _free_port()):
        async with run_node(settings_of(tmp_path, PERSYS_GRPC_PORT=str(port), **calls), MEMORY):
            said.append((await registry.told.get()).boot_id)
    await server.stop(None)
    assert (said[0], len(said[1])) == ("", 32)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _read(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=5) as answer:
        return str(answer.read().decode())
