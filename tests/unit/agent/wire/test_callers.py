"""Who may call an agent, over real mutual TLS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme

from persys_agent.wire.callers import CallerPolicy, CallerRules, refusal_of
from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.agent.v1 import agent_pb2_grpc
from persys_proto.aio import agent_service_stub

AUTHORITY = trustme.CA()
SERVICE = "/persys.agent.v1.AgentService"


class Open(agent_pb2_grpc.AgentServiceServicer):
    """Serves whoever comes."""

    async def ApplyWorkload(self, request: Any, context: Any) -> wire.ApplyWorkloadResponse:
        """Take it."""
        return wire.ApplyWorkloadResponse(applied=True)

    async def ListWorkloads(self, request: Any, context: Any) -> wire.ListWorkloadsResponse:
        """Nothing."""
        return wire.ListWorkloadsResponse()

    async def StreamLogs(self, request: Any, context: Any) -> AsyncIterator[wire.LogLine]:
        """One line."""
        yield wire.LogLine(text="a line")

    async def Exec(self, request_iterator: Any, context: Any) -> AsyncIterator[wire.ExecResponse]:
        """Say that it has begun, then count what comes."""
        yield wire.ExecResponse(stdout=b"begun")
        count = 0
        async for _ in request_iterator:
            count += 1
        yield wire.ExecResponse(exit_code=count)


@asynccontextmanager
async def served(policy: CallerPolicy, *, tls: bool = True) -> AsyncIterator[int]:
    server = grpc.aio.server(interceptors=(CallerRules(policy),))
    agent_pb2_grpc.add_AgentServiceServicer_to_server(Open(), server)
    if tls:
        pair = AUTHORITY.issue_cert("127.0.0.1")
        credentials = grpc.ssl_server_credentials(
            [(pair.private_key_pem.bytes(), pair.cert_chain_pems[0].bytes())],
            AUTHORITY.cert_pem.bytes(),
            require_client_auth=True,
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def channel_of(port: int, name: str) -> grpc.aio.Channel:
    pair = AUTHORITY.issue_cert(name)
    credentials = grpc.ssl_channel_credentials(
        AUTHORITY.cert_pem.bytes(),
        pair.private_key_pem.bytes(),
        pair.cert_chain_pems[0].bytes(),
    )
    return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials)


async def allowed(channel: grpc.aio.Channel) -> dict[str, bool]:
    """What a caller gets done, call by call."""
    stub = agent_service_stub(channel)

    async def logs() -> None:
        assert [line.text async for line in stub.StreamLogs(wire.StreamLogsRequest())] == ["a line"]

    async def execute() -> None:
        # Nothing is written before it has begun: a refusal in the middle of a write is told as
        # an internal error by the client's library.
        call = stub.Exec(timeout=5)
        begun = await call.read()
        assert isinstance(begun, wire.ExecResponse)
        assert begun.stdout == b"begun"
        for _ in range(2):
            await call.write(wire.ExecRequest())
        await call.done_writing()
        counted = await call.read()
        assert isinstance(counted, wire.ExecResponse)
        assert counted.exit_code == 2

    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "apply": lambda: stub.ApplyWorkload(wire.ApplyWorkloadRequest(), timeout=5),
        "list": lambda: stub.ListWorkloads(wire.ListWorkloadsRequest(), timeout=5),
        "logs": logs,
        "exec": execute,
    }
    return {name: await _is_served(call) for name, call in calls.items()}


async def _is_served(call: Callable[[], Awaitable[object]]) -> bool:
    try:
        await call()
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.PERMISSION_DENIED:
            raise
        return False
    return True


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "may"),
    [("persys-scheduler", (1, 1, 1, 1)), ("persysctl", (0, 1, 1, 1)), ("n7", (0, 0, 0, 0))],
)
async def test_each_role_gets_what_it_needs(name: str, may: tuple[int, ...]) -> None:
    """Defect 41: schedulers do everything, operators look and run commands, others nothing."""
    async with served(CallerPolicy()) as port, channel_of(port, name) as channel:
        assert tuple((await allowed(channel)).values()) == tuple(map(bool, may))


@pytest.mark.asyncio
async def test_a_migration_only_tells() -> None:
    """With *warn* nobody is refused."""
    policy = CallerPolicy(enforces=False)
    async with served(policy) as port, channel_of(port, "n7") as channel:
        assert all((await allowed(channel)).values())


@pytest.mark.asyncio
async def test_without_tls_nobody_can_be_told_apart() -> None:
    """So nobody is refused; whoever switches TLS off was told what that means."""
    async with (
        served(CallerPolicy(), tls=False) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        assert all((await allowed(channel)).values())


def test_a_refusal_says_what_would_allow_it() -> None:
    """The names that were shown, the call, and the settings; an unknown call is no operator's."""
    policy = CallerPolicy()
    text = refusal_of(f"{SERVICE}/ListWorkloads", ["n7"], policy)
    assert "(n7) do not allow ListWorkloads" in text
    assert "tls_scheduler_names or tls_operator_names" in text
    assert refusal_of(f"{SERVICE}/Unheard", ["persysctl"], policy)
    assert not refusal_of(f"{SERVICE}/Unheard", ["persys-scheduler"], policy)
