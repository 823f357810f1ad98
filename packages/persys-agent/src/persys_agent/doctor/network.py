"""What is looked at on the network: the scheduler, our own ports and endpoint."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from ipaddress import ip_address

import aiohttp
import grpc
import grpc.aio

from persys_agent.doctor.findings import Case, Finding, Verdict
from persys_agent.host.facts import address_towards, read_facts
from persys_agent.settings import NodeSettings
from persys_agent.settings.certificates import (
    CertificateError,
    channel_credentials,
    channel_options,
    read_material,
    tls_paths,
)
from persys_agent.settings.identity import advertised_endpoint, chosen_node_id

__all__ = ["look_at_identity", "look_at_ports", "look_at_scheduler"]

_PATIENCE = timedelta(seconds=3)
_NO_METHOD = "/persys.control.v1.AgentControl/DoctorAsksWhetherSomebodyAnswers"
"""Answered with UNIMPLEMENTED by every gRPC server, and by nothing else; it changes nothing."""


async def look_at_scheduler(case: Case) -> AsyncIterator[Finding]:
    """It takes connections, and it speaks gRPC with our certificate."""
    settings = case.settings
    if settings.standalone:
        yield Finding("scheduler", Verdict.OK, "standalone: none is asked")
        return
    trouble = await _cannot_connect(settings.scheduler_addr)
    if trouble:
        advice = "is it up, and does a firewall let this host through? See scheduler_addr"
        yield Finding("scheduler", Verdict.FAIL, f"{settings.scheduler_addr}: {trouble}", advice)
        return
    try:
        trouble = await _cannot_call(settings)
    except CertificateError as error:
        trouble = str(error)
    if trouble:
        advice = (
            "compare scheduler_insecure, tls_ca_path and tls_server_name with the scheduler's"
            " settings"
        )
        yield Finding("scheduler", Verdict.FAIL, f"{settings.scheduler_addr}: {trouble}", advice)
    else:
        yield Finding("scheduler", Verdict.OK, f"{settings.scheduler_addr} answers")


async def look_at_ports(case: Case) -> AsyncIterator[Finding]:
    """They are free, or an agent that runs already has them; that one's own word is passed on."""
    settings = case.settings
    health = await _health_of_running_agent(settings)
    is_running = health is not None
    for key, host, port in (
        ("grpc_port", settings.grpc_addr, settings.grpc_port),
        ("metrics_port", settings.metrics_addr, settings.metrics_port),
    ):
        trouble = _cannot_listen(host, port)
        if not trouble:
            yield Finding(key, Verdict.OK, f"{host}:{port} is free")
        elif is_running:
            yield Finding(key, Verdict.OK, f"{host}:{port} is in use, and an agent runs here")
        else:
            advice = f"stop who has it, or set {key} to something else"
            yield Finding(key, Verdict.FAIL, f"{host}:{port}: {trouble}", advice)
    if health is not None:
        yield _running_agent(health)


async def look_at_identity(case: Case) -> AsyncIterator[Finding]:
    """What the scheduler is told, and whether it can reach that."""
    settings = case.settings
    facts = await asyncio.to_thread(read_facts)
    towards = await asyncio.to_thread(address_towards, settings.scheduler_addr)
    node_id = chosen_node_id(settings.node_id, facts.hostname, facts.machine_id, facts.mac)
    endpoint = advertised_endpoint(settings, settings.grpc_port, towards, facts.addresses)
    found = f"{node_id} at {endpoint}"
    if _is_loopback(endpoint) and not _is_loopback(settings.scheduler_addr):
        yield Finding(
            "node", Verdict.WARN, f"{found}: the scheduler is elsewhere and cannot call that",
            "set agent_grpc_endpoint, or grpc_addr",
        )  # fmt: skip
    else:
        yield Finding("node", Verdict.OK, found)


async def _cannot_connect(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except TimeoutError:
        return f"no connection within {_PATIENCE.total_seconds():g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return ""


async def _cannot_call(settings: NodeSettings) -> str:
    async with _channel(settings) as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_NO_METHOD)
        try:
            await call(b"", timeout=_PATIENCE.total_seconds())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return ""
            return f"{error.code().name}: {(error.details() or 'no details')[:200]}"
    return ""


def _channel(settings: NodeSettings) -> grpc.aio.Channel:
    options = (
        *channel_options(settings),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    )
    if settings.scheduler_insecure:
        return grpc.aio.insecure_channel(settings.scheduler_addr, options=options)
    credentials = channel_credentials(read_material(tls_paths(settings)))
    return grpc.aio.secure_channel(settings.scheduler_addr, credentials, options=options)


def _running_agent(health: dict[str, object]) -> Finding:
    reason = health.get("reason")
    if reason:
        return Finding("agent", Verdict.FAIL, f"runs, and is not well: {reason}")
    return Finding("agent", Verdict.OK, "runs, and is well")


async def _health_of_running_agent(settings: NodeSettings) -> dict[str, object] | None:
    host = "127.0.0.1" if settings.metrics_addr in ("0.0.0.0", "::") else settings.metrics_addr
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.metrics_port}/health"
    timeout = aiohttp.ClientTimeout(total=_PATIENCE.total_seconds())
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            body = await answer.json()
    except (aiohttp.ClientError, TimeoutError, ValueError, OSError):
        return None
    return body if isinstance(body, dict) and "runtimes" in body else None


def _cannot_listen(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
