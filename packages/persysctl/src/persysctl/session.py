"""One call: arguments in, exit code out.

Decided here: how a failure of any kind ends the process. What a verb does stands in ``commands``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, cast

from persysctl.arguments import Command, option
from persysctl.client import DEFAULT_DEADLINE_SECONDS, Client
from persysctl.context import Context
from persysctl.errors import CtlError, UsageError
from persysctl.output.structured import OutputFormat
from persysctl.output.terminal import Output, Terminal
from persysctl.parser import build_parser
from persysctl.settings import DEFAULT_SERVER, ConnectionFlags, ServerSettings, read_settings

__all__ = ["Surroundings", "run"]


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What one call sees of the machine: streams, environment, home and clock."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    home: Path
    now: Callable[[], datetime] = _utc_now


async def run(argv: Sequence[str], here: Surroundings) -> int:
    """One call: parse, connect, run the verb; errors for people are printed here.

    The answer is an ``ExitCode``, but for `exec`: there it may be any code of the command's.
    """
    terminal = Terminal(here.stdout, here.stderr, here.environ)
    try:
        return await _run(argv, here, terminal)
    except CtlError as error:
        terminal.note(f"error: {error}")
        return error.exit_code


async def _run(argv: Sequence[str], here: Surroundings, terminal: Terminal) -> int:
    _check_characters(argv)
    args = build_parser().parse_args(argv)
    try:
        return await _run_verb(args, here, terminal)
    except CtlError as error:
        error.exit_code = getattr(args, "failure_code", error.exit_code)
        raise


async def _run_verb(args: argparse.Namespace, here: Surroundings, terminal: Terminal) -> int:
    settings = _settings(args, here)
    output = Output(terminal, OutputFormat(option(args, "output", str) or OutputFormat.TABLE))
    timeout = option(args, "timeout", float)
    async with Client(settings, _deadline(args, timeout)) as client:
        context = Context(client, output, here.stdin, here.now, timeout)
        return await cast("Command", args.run)(context, args)


def _check_characters(argv: Sequence[str]) -> None:
    """Bytes that are no UTF-8 come as halves of characters, which can be neither sent nor shown."""
    for number, text in enumerate(argv, start=1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"argument {number} is not UTF-8 text: {text!r}") from None


def _settings(args: argparse.Namespace, here: Surroundings) -> ServerSettings:
    """Where to connect to; a verb that asks nobody works whatever the settings are."""
    if getattr(args, "offline", False):
        return ServerSettings(DEFAULT_SERVER)
    return read_settings(_flags(args), here.environ, here.home)


def _deadline(args: argparse.Namespace, timeout: float | None) -> float:
    """The deadline of one call; where a verb waits, ``--timeout`` is for the waiting."""
    if timeout is None or getattr(args, "wait", False):
        return float(getattr(args, "deadline_seconds", DEFAULT_DEADLINE_SECONDS))
    return timeout


def _flags(args: argparse.Namespace) -> ConnectionFlags:
    return ConnectionFlags(
        server=option(args, "server", str),
        insecure=bool(option(args, "insecure", bool)),
        ca_file=option(args, "ca_file", str),
        cert_file=option(args, "cert_file", str),
        key_file=option(args, "key_file", str),
        server_name=option(args, "server_name", str),
        agent_server_name=option(args, "agent_server_name", str),
        request_id=option(args, "request_id", str),
    )
