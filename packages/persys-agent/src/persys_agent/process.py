"""`persys-agent`: start, wait for a signal, stop.

Decided here: the order of starting and stopping and the exit codes: 0 after a signal, 1 when it
could not start, 3 for a wrong command line.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import grpc
import structlog

from persys_agent.clock import SystemClock
from persys_agent.doctor.command import doctor
from persys_agent.doctor.findings import Probe
from persys_agent.node.program import run_node
from persys_agent.options import DoctorRun, NodeRun, RunOptions, TlsFiles, UsageError, parse_command
from persys_agent.runtimes.factory import build_backends
from persys_agent.runtimes.port import Capability, Owner, Runtime
from persys_agent.settings import LogFormat, NodeSettings
from persys_agent.simulated.control_http import ControlServer
from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_core.model.errors import PersysError
from persys_core.model.states import WorkloadType

__all__ = ["channel_credentials", "main", "server_credentials"]

_EXIT_FAILED = 1
_EXIT_USAGE = 3
_WILDCARDS = ("0.0.0.0", "::", "[::]", "")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns the exit code."""
    _configure_logs("info", LogFormat.TEXT)
    try:
        options = parse_command(arguments, os.environ)
    except UsageError as error:
        sys.stderr.write(f"persys-agent: {error}\n")
        return _EXIT_USAGE
    try:
        return asyncio.run(_carried_out(options))
    except (PersysError, OSError) as error:
        sys.stderr.write(f"persys-agent: {error}\n")
        return _EXIT_FAILED


async def _carried_out(options: RunOptions | NodeRun | DoctorRun) -> int:
    match options:
        case DoctorRun():
            _configure_logs("info" if options.is_verbose else "warning", LogFormat.TEXT)
            return await doctor(
                os.environ,
                _probes,
                sys.stdout,
                flags=options.flags,
                config=options.config,
                as_json=options.as_json,
            )
        case NodeRun():
            _configure_logs(options.settings.log_level, options.settings.log_format)
            await _run_node(options)
        case RunOptions():
            await _run(options)
    return 0


def _probes(settings: NodeSettings) -> dict[WorkloadType, Probe]:
    """Of the runtimes that ``run`` would use."""
    backends = build_backends(settings, Owner(settings.node_id), SystemClock())
    return {kind: partial(_asked, runtime) for kind, runtime in backends.runtimes.items()}


async def _asked(runtime: Runtime) -> Capability:
    """What it says of itself; it is not needed any more then."""
    try:
        return await runtime.probe()
    finally:
        await runtime.aclose()


def _configure_logs(level: str, form: LogFormat) -> None:
    processors = structlog.processors
    rendering: list[structlog.typing.Processor] = (
        [processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])]
        if form is LogFormat.TEXT
        else [processors.format_exc_info, processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            processors.add_log_level,
            processors.TimeStamper(fmt="iso"),
            *rendering,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _stopped_by_signal() -> asyncio.Event:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _run_node(run: NodeRun) -> None:
    log = structlog.get_logger()
    stop = _stopped_by_signal()
    settings = run.settings
    async with run_node(settings, run.choice) as served:
        log.info(
            "started",
            node=served.node_id,
            endpoint=served.endpoint,
            runtime=str(run.choice),
            scheduler="none (standalone)" if settings.standalone else settings.scheduler_addr,
            tls=settings.tls_enabled,
            config=settings.config_file or "none",
        )
        await stop.wait()
        log.info("stopping; what runs runs on")
    log.info("stopped")


async def _run(options: RunOptions) -> None:
    log = structlog.get_logger()
    stop = _stopped_by_signal()
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(SimulatedFleet(_fleet_options(options)))
        if options.control_port is not None:
            control = ControlServer(fleet, options.control_port)
            await control.start()
            stack.push_async_callback(control.stop)
            log.info("control interface", url=f"http://127.0.0.1:{control.port}")
        nodes = fleet.nodes()
        log.info(
            "started",
            nodes=len(nodes),
            first=f"{nodes[0].node_id} at {nodes[0].endpoint}",
            scheduler=options.scheduler or "none (standalone)",
            tls=options.tls is not None,
        )
        await stop.wait()
        log.info("stopping")
    log.info("stopped")


def _fleet_options(options: RunOptions) -> FleetOptions:
    return FleetOptions(
        nodes=options.nodes,
        prefix=options.prefix,
        node_id=options.node_id,
        scheduler=options.scheduler,
        listen=options.listen,
        advertise=options.advertise or _advertised(options),
        cpu_millicores=options.cpu_millicores,
        memory_mb=options.memory_mb,
        disk_gb=options.disk_gb,
        workload_types=options.types,
        storage_drivers=options.storage_drivers,
        labels=_with_host_labels(options.labels),
        latency=options.latency,
        failure_rate=options.failure_rate,
        seed=options.seed,
        legacy=options.legacy,
        server_credentials=server_credentials(options.tls) if options.tls else None,
        channel_credentials=channel_credentials(options.tls) if options.tls else None,
    )


def _with_host_labels(labels: Mapping[str, str]) -> dict[str, str]:
    machine = platform.machine().lower()
    host = {"os": platform.system().lower(), "arch": _ARCHITECTURES.get(machine, machine)}
    return {**host, **labels}


def _advertised(options: RunOptions) -> str:
    """The host to tell the scheduler where the servers listen on every address."""
    if options.listen not in _WILDCARDS:
        return options.listen
    host, _, port = options.scheduler.rpartition(":")
    if not host:
        return "127.0.0.1"
    family, kind, _, _, target = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)  # sends nothing; the system only chooses a source address
        return str(probe.getsockname()[0])


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What the nodes serve with: a client certificate of the trust bundle is required."""
    pair = (Path(files.key).read_bytes(), Path(files.cert).read_bytes())
    return grpc.ssl_server_credentials(
        [pair], root_certificates=Path(files.ca).read_bytes(), require_client_auth=True
    )


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """What the nodes call the scheduler with."""
    return grpc.ssl_channel_credentials(
        root_certificates=Path(files.ca).read_bytes(),
        private_key=Path(files.key).read_bytes(),
        certificate_chain=Path(files.cert).read_bytes(),
    )
