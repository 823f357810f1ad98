"""``persys-server dev``: opens everything, tells the story, stays until Ctrl-C, closes everything.

Decided here: the order of opening and closing, what is printed before and after, and the exit
code: 0 where all went well or a person ended it, 1 where something did not converge or could not
start, 2 where the settings or the specifications cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from importlib import import_module
from pathlib import Path

import grpc.aio
from attrs import frozen
from rich.console import Console
from rich.table import Table
from rich.text import Text

from persys_core.control.scheduler import Scheduler
from persys_core.model.errors import PersysError
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.backends import open_ports
from persys_server.dev.examples import ManifestError, requests_in
from persys_server.dev.nodes import Nodes, open_nodes
from persys_server.dev.picture import ClusterEye
from persys_server.dev.runtimes import (
    DEFAULT_ENDPOINT,
    Daemon,
    Prepared,
    RuntimeWish,
    prepared,
)
from persys_server.dev.screen import ScreenTeller
from persys_server.dev.story import Pace, Story
from persys_server.dev.surroundings import (
    Folder,
    Ports,
    data_folder,
    demo_settings,
    is_free,
    stderr_into,
    with_any_ports,
)
from persys_server.dev.tellers import LineTeller, Teller
from persys_server.dev.verdict import Finding
from persys_server.grpc.server import PortTakenError
from persys_server.lifecycle import Served, serving
from persys_server.observability.logging import configure_logging
from persys_server.settings import Settings, SettingsError

__all__ = ["main"]

_WELL, _FAILED, _USAGE = 0, 1, 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READING_SECONDS = 3.0
_LIMIT_SECONDS = 120.0
_LOG_LINES_SHOWN = 20


@frozen
class _Plan:
    """One demonstration, ready to be given."""

    settings: Settings
    fallback: Settings
    folder: Folder
    requests: Sequence[pb.ApplyWorkloadRequest]
    nodes: int
    ends: bool
    live: bool
    wish: RuntimeWish
    docker: str


def main(given: argparse.Namespace) -> int:
    """Give the demonstration that the command line asks for; the process's exit code."""
    try:
        requests = requests_in(given.examples)
        with data_folder(given.data_dir or os.environ.get("PERSYS_DATA_DIR", "")) as folder:
            ports = Ports(given.grpc_port, given.metrics_port)
            settings = demo_settings(os.environ, folder, ports)
            live = not given.no_live and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
            fallback = with_any_ports(settings, os.environ, ports)
            plan = _Plan(
                settings,
                fallback,
                folder,
                requests,
                nodes=given.nodes,
                ends=given.exit,
                live=live,
                wish=RuntimeWish(given.runtime),
                docker=os.environ.get("DOCKER_HOST", "").strip() or DEFAULT_ENDPOINT,
            )
            return _give(plan)
    except SettingsError as error:
        return _complain(_USAGE, "these settings cannot be used:", *error.problems)
    except ManifestError as error:
        return _complain(_USAGE, str(error))
    except (PortTakenError, PersysError, OSError) as error:
        return _complain(_FAILED, f"cannot start or go on: {error}")


def _give(plan: _Plan) -> int:
    with plan.folder.log.open("a", buffering=1) as log, stderr_into(plan.folder.log):
        configure_logging(
            plan.settings.log_level,
            plan.settings.log_format,
            stream=log,
            secrets=plan.settings.secrets,
        )
        findings = asyncio.run(_demonstrate(plan))
    code = _WELL if all(finding.is_well for finding in findings) else _FAILED
    _print_summary(plan, findings)
    if code:
        _print_failure(plan, findings)
    return code


async def _demonstrate(plan: _Plan) -> Sequence[Finding]:
    ended = asyncio.Event()
    with _signals_set(ended), _teller(plan) as teller:
        ready = await _prepared(plan, teller, ended)
        if ready is None:
            return []
        async with _serving(plan) as served:
            address = f"{_reachable(plan.settings.grpc_addr)}:{served.grpc_port}"
            teller.hint(_hints(plan, served, address, "summary"))
            if served.grpc_port != plan.settings.grpc_port:
                teller.say(f"The usual ports are taken, so the API is at {address} this time.")
            folder = plan.folder.path
            async with (
                open_nodes(ready, address, folder, plan.nodes) as nodes,
                _eye(address, teller) as eye,
            ):
                story = _story(plan, ready, nodes, eye, teller)

                def invite(waiting: str) -> None:
                    teller.step("Your turn")
                    teller.say("The cluster stays up. Ask it from another terminal.")
                    teller.hint(_hints(plan, served, address, waiting))

                findings = await _tell(story, invite, ended, ends=plan.ends)
                return [Finding("runtime", True, ready.text), *ready.left_out, *findings]


async def _prepared(plan: _Plan, teller: Teller, ended: asyncio.Event) -> Prepared | None:
    """What to run and on what; ``None`` where the audience left meanwhile."""
    preparing = asyncio.create_task(
        prepared(
            plan.wish,
            plan.docker,
            plan.requests,
            open_daemon=_docker_daemon,
            is_free=lambda port: is_free("0.0.0.0", port),
            say=teller.say,
        )
    )
    leaving = asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((preparing, leaving), return_when=asyncio.FIRST_COMPLETED)
        return preparing.result() if preparing.done() else None
    finally:
        preparing.cancel()
        leaving.cancel()
        await asyncio.gather(preparing, leaving, return_exceptions=True)


def _docker_daemon(endpoint: str) -> Daemon:
    """Loaded only where it is asked for: its libraries take a while."""
    daemon: Daemon = import_module("persys_server.dev.docker").DockerDaemon(endpoint)
    return daemon


def _story(plan: _Plan, ready: Prepared, nodes: Nodes, eye: ClusterEye, teller: Teller) -> Story:
    return Story(
        eye,
        teller,
        ready.requests,
        nodes=nodes.count,
        kill=nodes.kill,
        pace=Pace(reading=_READING_SECONDS if plan.live else 0.0),
        agents="agent" if ready.endpoint else "simulated agent",
    )


async def _tell(
    story: Story, invite: Callable[[str], None], ended: asyncio.Event, *, ends: bool
) -> Sequence[Finding]:
    """The story, then the wait for its audience to leave; nothing where it left before."""
    telling, leaving = asyncio.create_task(story.run()), asyncio.create_task(ended.wait())
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not telling.done():
            return [Finding("demo", False, "was broken off before its end")] if ends else []
        findings = telling.result()
        if not ends:
            invite(f"explain {story.waiting[0]}" if story.waiting else "summary")
            await leaving
        return findings
    except TimeoutError:
        return [Finding("demo", False, f"was not done within {_LIMIT_SECONDS:g} s")]
    finally:
        telling.cancel()
        leaving.cancel()
        await asyncio.gather(telling, leaving, return_exceptions=True)


@asynccontextmanager
async def _serving(plan: _Plan) -> AsyncIterator[Served]:
    """A replica; where its ports were taken meanwhile, and nobody named them, at any others."""
    async with AsyncExitStack() as stack:
        try:
            replica = serving(plan.settings, open_ports, Scheduler)
            served = await stack.enter_async_context(replica)
        except PortTakenError:
            if plan.fallback == plan.settings:
                raise
            replica = serving(plan.fallback, open_ports, Scheduler)
            served = await stack.enter_async_context(replica)
        yield served


@contextmanager
def _teller(plan: _Plan) -> Iterator[Teller]:
    if not plan.live:
        yield LineTeller(sys.stdout)
        return
    with ScreenTeller(Console()) as screen:
        yield screen


@asynccontextmanager
async def _eye(address: str, teller: Teller) -> AsyncIterator[ClusterEye]:
    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        eye = ClusterEye(channel, teller.show)
        following = asyncio.create_task(eye.follow())
        try:
            yield eye
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


@contextmanager
def _signals_set(ended: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        for number in _SIGNALS:
            loop.add_signal_handler(number, ended.set)
            stack.callback(loop.remove_signal_handler, number)
        yield


# -------------------------------------------------------------------------- words


def _reachable(host: str) -> str:
    """An address that this machine can be spoken to at, as URLs write it."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{name}]" if ":" in name else name


def _hints(plan: _Plan, served: Served, address: str, waiting: str) -> list[str]:
    """How to go on, the most useful line first: a small screen shows only the first two."""
    host = address.rpartition(":")[0]
    kept = "" if plan.folder.kept else " (removed at the end)"
    return [
        f"persysctl --server {address} list workloads, or: {waiting}, events",
        f"metrics: http://{host}:{served.metrics_port}/metrics    Ctrl-C ends the demo",
        f"log: {plan.folder.log}{kept}",
    ]


def _print_summary(plan: _Plan, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("SUBJECT", no_wrap=True)
    table.add_column("")
    table.add_column("OUTCOME", overflow="fold")
    for finding in findings:
        mark = Text("ok", "green") if finding.is_well else Text("NOT OK", "bold red")
        table.add_row(Text(finding.subject), mark, Text(finding.text))
    Console(markup=False, emoji=False, highlight=False).print(table)


def _print_failure(plan: _Plan, findings: Sequence[Finding]) -> None:
    names = ", ".join(finding.subject for finding in findings if not finding.is_well)
    _complain(_FAILED, f"did not converge: {names}. The last lines of the log:", *_tail(plan))


def _tail(plan: _Plan) -> list[str]:
    return plan.folder.log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]


def _complain(code: int, text: str, *more: str | Path) -> int:
    sys.stderr.write(f"persys-server dev: {text}\n" + "".join(f"  {line}\n" for line in more))
    return code
