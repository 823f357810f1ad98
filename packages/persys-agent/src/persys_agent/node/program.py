"""``run_node``: one real node, from its settings to the signal that stops it.

Decided here: what the settings mean for the parts, and that a node without a scheduler (standalone)
fences nothing, since nobody could move its work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import structlog

from persys_agent.clock import SystemClock
from persys_agent.control_client import ControlClient, open_control_channel
from persys_agent.host.facts import HostFacts, address_towards, read_facts
from persys_agent.metrics.server import Health, MetricsServer
from persys_agent.node.assembly import Assembly, NodeOptions, assemble
from persys_agent.node.serving import Listening, Served, serve
from persys_agent.reporting.link import SchedulerLink
from persys_agent.runtimes.factory import RuntimeChoice, build_backends
from persys_agent.runtimes.port import Owner
from persys_agent.settings import NodeSettings
from persys_agent.settings.certificates import (
    TlsFilesOnDisk,
    TlsMaterial,
    channel_credentials,
    channel_options,
    server_credentials,
    tls_paths,
)
from persys_agent.settings.identity import advertised_endpoint, chosen_node_id, node_labels
from persys_agent.settings.parse import CallerCheck
from persys_agent.state.lease_file import LeaseFile
from persys_agent.state.store import AgentState
from persys_agent.state.thread import StateThread
from persys_agent.wire.callers import CallerPolicy, CallerRules
from persys_core.model.resources import Resources

__all__ = ["run_node"]

_VERSION = "persys-agent 0.1.0"


@asynccontextmanager
async def run_node(
    settings: NodeSettings,
    choice: RuntimeChoice = RuntimeChoice.AUTO,
    *,
    machine: HostFacts | None = None,
) -> AsyncIterator[Served]:
    """A node as the settings say, until the block ends. ``machine`` is what it takes its machine
    for; without it, it looks.

    Raises ``PersysError`` where it cannot start: ``StateError``, ``CertificateError`` or
    ``PortTakenError``.
    """
    facts = await asyncio.to_thread(read_facts) if machine is None else machine
    options = node_options(settings, facts)
    clock = SystemClock()
    files = TlsFilesOnDisk(tls_paths(settings), on_problem=_tell) if _uses_tls(settings) else None
    async with StateThread(Path(settings.state_store_path)) as thread:
        state = AgentState(thread)
        await state.load()
        owner = Owner(options.node_id, options.cluster_id)
        backends = build_backends(settings, owner, clock, choice)
        lease = LeaseFile(Path(settings.state_store_path).with_name("lease.json"))
        node = assemble(options, state, backends, clock, lease=lease)
        listening = Listening(
            settings.grpc_addr,
            settings.grpc_port,
            server_credentials(files) if files and settings.tls_enabled else None,
            (CallerRules(_caller_policy(settings)),),
        )
        link = None if settings.standalone else _link(settings, files, node)
        towards = await asyncio.to_thread(address_towards, settings.scheduler_addr)
        try:
            async with (
                _measured(settings, node),
                serve(
                    node,
                    backends,
                    listening,
                    scheduler=link,
                    endpoint=lambda port: advertised_endpoint(
                        settings, port, towards, facts.addresses
                    ),
                    reconciles=settings.reconcile_enabled,
                ) as served,
            ):
                yield served
        finally:
            if link is not None:
                await link.aclose()


@asynccontextmanager
async def _measured(settings: NodeSettings, node: Assembly) -> AsyncIterator[None]:
    """/metrics and /health, for as long as the block lasts. Raises ``CannotListenError``."""

    async def health() -> Health:
        ailment = node.health.ailment()
        return Health(not ailment, ailment, node.health.runtimes())

    server = MetricsServer(node.counting.metrics, health, refresh=node.refresh_metrics)
    await server.start(settings.metrics_addr, settings.metrics_port)
    try:
        yield
    finally:
        await server.stop()


def node_options(settings: NodeSettings, facts: HostFacts) -> NodeOptions:
    """What the settings and the machine make of a node."""
    return NodeOptions(
        node_id=chosen_node_id(settings.node_id, facts.hostname, facts.machine_id, facts.mac),
        size=Resources.of(cpu_millicores=facts.cpu_millicores, memory_mb=facts.memory_mb),
        root_pool=facts.root_pool,
        reserved=Resources.of(
            cpu_millicores=settings.host_reserve_cpu_millicores,
            memory_mb=settings.host_reserve_memory_mb,
            disk_gb=settings.host_reserve_disk_gb,
        ),
        cluster_id=settings.cluster_id,
        version=settings.version or _VERSION,
        labels=node_labels(settings, facts.system, facts.architecture),
        stop_after=None if settings.standalone else settings.stop_after or None,
        stop_grace=settings.stop_grace,
        reconcile_interval=settings.reconcile_interval,
        workers=settings.task_workers,
        history_limit=settings.task_history,
    )


def _caller_policy(settings: NodeSettings) -> CallerPolicy:
    return CallerPolicy(
        frozenset(settings.tls_scheduler_names),
        frozenset(settings.tls_operator_names),
        enforces=settings.tls_authz is CallerCheck.ENFORCE,
    )


def _uses_tls(settings: NodeSettings) -> bool:
    calls_with_tls = not settings.standalone and not settings.scheduler_insecure
    return settings.tls_enabled or calls_with_tls


def _link(settings: NodeSettings, files: TlsFilesOnDisk | None, node: Assembly) -> SchedulerLink:
    used = None if settings.scheduler_insecure else files

    def open_channel(material: object) -> grpc.aio.Channel:
        credentials = channel_credentials(material) if isinstance(material, TlsMaterial) else None
        return open_control_channel(
            settings.scheduler_addr, credentials, channel_options(settings) if credentials else ()
        )

    def make_client(channel: grpc.aio.Channel) -> ControlClient:
        return ControlClient(channel, allocated=lambda: node.works.executor.promised)

    return SchedulerLink(open_channel, make_client, used.current if used else lambda: None)


def _tell(problem: str) -> None:
    structlog.get_logger().error(
        "the TLS files cannot be used; the last good ones stay", problem=problem
    )
