"""The command ``persys-server``: ``run``, ``dev`` and ``doctor``.

Decided here: the command line, and how an error that stops the start is told. What is served
stands in ``lifecycle``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from attrs import evolve

from persys_server.doctor.checks import examine
from persys_server.doctor.report import exit_code, print_report
from persys_server.run import serve
from persys_server.settings import Settings, SettingsError, load_settings

__all__ = ["main"]

_USAGE = 2

_RUN_TEXT = """\
Serve the control plane: the gRPC API on GRPC_PORT, and /health, /readyz and /metrics over HTTP on
METRICS_PORT. Settings come from environment variables; docs/operations.md and sample.env list
them. Stop with SIGTERM or Ctrl-C: work in flight is finished, workloads keep running.
"""
_RUN_EXAMPLE = """\
example:
  PERSYS_STORE=sqlite:state.db PERSYS_DATA_DIR=./data persys-server run --insecure
"""
_NO_TLS = """\
persys-server: TLS is not in this release, so it has to be switched off in so many words.
Start with --insecure, and let only networks that you trust reach the ports."""


def main(arguments: Sequence[str]) -> int:
    """Run one command; the result is the exit code of the process."""
    parser = _parser()
    given = parser.parse_args(arguments)
    match given.command:
        case "run":
            return _run(given, os.environ)
        case "doctor":
            return _doctor(os.environ)
        case _:
            return _dev(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="persys-server", description="The control plane server of Persys."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="serve the control plane",
        description=_RUN_TEXT,
        epilog=_RUN_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "--insecure", "-insecure", action="store_true", help="serve without TLS (required so far)"
    )
    run.add_argument("--grpc-port", type=_port, metavar="PORT", help="instead of GRPC_PORT")
    run.add_argument("--metrics-port", type=_port, metavar="PORT", help="instead of METRICS_PORT")
    commands.add_parser(
        "doctor",
        help="look at everything that run needs",
        description="Check settings, store, folders and ports, and say what to do about each"
        " problem. The exit code is 1 if run would fail.",
    )
    _add_dev(commands)
    return parser


def _add_dev(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    dev = commands.add_parser(
        "dev",
        help="start a control plane with agents on this machine",
        description="Start one replica together with some agents, apply the examples, and show what"
        " happens. Where a Docker daemon answers, the agents run real containers on it, and all"
        " that they made is removed at the end; elsewhere they are simulated. Needs nothing else.",
    )
    dev.add_argument("--nodes", type=_count, default=4, metavar="N", help="how many nodes (4)")
    dev.add_argument(
        "--runtime",
        choices=("auto", "docker", "simulated"),
        default="auto",
        help="what runs the workloads: docker (DOCKER_HOST, or /var/run/docker.sock), simulated, or"
        " auto, which is docker where that can be used (auto)",
    )
    dev.add_argument(
        "--examples", type=Path, metavar="DIR", help="folder of specifications to apply"
    )
    dev.add_argument(
        "--exit",
        action="store_true",
        help="end after the story with a summary; the exit code is 1 where it did not go well",
    )
    dev.add_argument("--no-live", action="store_true", help="plain lines instead of a live table")
    dev.add_argument(
        "--data-dir",
        default="",
        metavar="DIR",
        help="keep state and log here (PERSYS_DATA_DIR; otherwise a folder that is removed)",
    )
    dev.add_argument(
        "--grpc-port", type=_port, metavar="PORT", help="instead of 8085, or a free one"
    )
    dev.add_argument(
        "--metrics-port", type=_port, metavar="PORT", help="instead of 8084, or a free one"
    )


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def _run(given: argparse.Namespace, environment: Mapping[str, str]) -> int:
    try:
        settings = _with_ports(load_settings(environment), given)
    except SettingsError as error:
        _complain("persys-server: these settings cannot be used:")
        for problem in error.problems:
            _complain(f"  {problem}")
        return _USAGE
    if not given.insecure:
        _complain(_NO_TLS)
        return _USAGE
    return serve(settings, environment)


def _with_ports(settings: Settings, given: argparse.Namespace) -> Settings:
    changed = evolve(
        settings,
        grpc_port=given.grpc_port or settings.grpc_port,
        metrics_port=given.metrics_port or settings.metrics_port,
    )
    if changed.grpc_port == changed.metrics_port:
        raise SettingsError([f"--metrics-port: {changed.metrics_port} is also the gRPC port"])
    return changed


def _complain(text: str) -> None:
    sys.stderr.write(text + "\n")


def _dev(given: argparse.Namespace) -> int:
    """The demonstration brings agents along, which nothing else here needs."""
    start: Callable[[argparse.Namespace], int] = import_module("persys_server.dev").main
    return start(given)


def _doctor(environment: Mapping[str, str]) -> int:
    findings = examine(environment)
    print_report(findings, sys.stdout)
    return exit_code(findings)
