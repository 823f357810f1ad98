"""The one way in which the agent runs other programs.

Decided here: a command is a list of words and never goes through a shell; it has a time limit, and
at its end or when the caller is cancelled its whole process group is ended; its output is read to
the end but kept up to a limit; it gets an environment of the host's without secrets and without
this agent's own variables; it is logged, with secrets masked. An exit code is a value, not an
exception: what it means is known where the command is.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from subprocess import DEVNULL, PIPE
from typing import Protocol

import structlog
from attrs import field, frozen

from persys_core.model.errors import PersysError
from persys_core.model.secrets import (
    is_secret_name,
    masked_command,
    scrubbed,
    secret_command_values,
    secret_env_values,
)

__all__ = [
    "CommandError",
    "CommandResult",
    "CommandTimeoutError",
    "Commands",
    "HostCommands",
    "MissingProgramError",
]

_MOST_OUTPUT = 4 << 20
_MOST_SAID = 400
_CHUNK = 1 << 16
_GRACE = timedelta(seconds=2)
_LAST_WORDS = timedelta(seconds=1)
"""How long output is waited for once the program ended: what it started may hold the pipe open."""
_MORE_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")


class CommandError(PersysError):
    """A command that could not be run to its end; the text holds no secret."""


class MissingProgramError(CommandError):
    """There is no such program, or it may not be run."""


class CommandTimeoutError(CommandError):
    """The command took too long, and was ended."""


@frozen
class CommandResult:
    """How a command ended. ``code`` is negative where a signal ended it (as its number).

    ``stdout`` is the beginning of the output and ``stderr`` the end of it, as they are: they may
    hold secrets. ``said`` is a short text of both for people, without any.
    """

    code: int
    stdout: bytes = field(default=b"", repr=False)
    stderr: bytes = field(default=b"", repr=False)
    said: str = ""
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether the command ended with 0."""
        return self.code == 0

    @property
    def text(self) -> str:
        """The output as text, without blanks around it."""
        return self.stdout.decode(errors="replace").strip()


class Commands(Protocol):
    """Runs programs of the host."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        """Run a program to its end. ``env`` is added to the host's. Raises ``CommandError``."""
        ...

    def find(self, program: str) -> str:
        """The path of a program; empty where there is none."""
        ...


class HostCommands:
    """``Commands`` of this host."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """``environment`` is what commands get, ``os.environ`` unless given; see the module."""
        self._environment = _inherited(os.environ if environment is None else environment)
        self._log = structlog.get_logger()

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        """See ``Commands.run``."""
        added = dict(env or {})
        secrets = secret_env_values(added) | secret_command_values(argv)
        shown = [scrubbed(word, secrets) for word in masked_command(argv)]
        began = time.monotonic()
        run = await self._start(argv, shown, {**self._environment, **added}, cwd, bool(input))
        ended = "cancelled"
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                code = await run.to_the_end(input)
            ended = str(code)
            return run.result(code, secrets)
        except TimeoutError as error:
            ended = "timeout"
            raise CommandTimeoutError(
                f"`{' '.join(shown)}` took longer than {timeout.total_seconds():g} s and was ended"
            ) from error
        finally:
            await run.end()
            seconds = round(time.monotonic() - began, 3)
            self._log.info("command", argv=shown, cwd=cwd or None, ended=ended, seconds=seconds)

    def find(self, program: str) -> str:
        """See ``Commands.find``."""
        return shutil.which(program, path=self._environment["PATH"]) or ""

    async def _start(
        self,
        argv: Sequence[str],
        shown: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        has_input: bool,
    ) -> _Run:
        path = shutil.which(argv[0], path=environment["PATH"])
        if path is None:
            raise MissingProgramError(f"{shown[0]} is not on this host, or may not be run")
        run = _Run()
        starting = asyncio.ensure_future(
            asyncio.get_running_loop().subprocess_exec(
                lambda: run,
                path,
                *argv[1:],
                stdin=PIPE if has_input else DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=environment,
                cwd=cwd or None,
                start_new_session=True,
            )
        )
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Left to itself, asyncio would end the program alone and wait for the pipes that its
            # children hold: so it is started to the end, and then ended like any other.
            await asyncio.wait((starting,))
            if starting.exception() is None:
                await run.end()
            raise
        except OSError as error:
            raise MissingProgramError(
                f"`{' '.join(shown)}` cannot be started: {error.strerror}"
            ) from error
        return run


class _Run(asyncio.SubprocessProtocol):
    """One process. A protocol and no streams, since those wait for everybody who holds the pipes,
    helpers in the background as well."""

    def __init__(self) -> None:
        self._exited = asyncio.Event()
        self._drained = asyncio.Event()
        self._open = {1, 2}
        self._kept = {1: bytearray(), 2: bytearray()}
        self._truncated = False
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Everything is read; of stdout the beginning is kept, of stderr the end."""
        kept = self._kept[fd]
        kept += data
        if len(kept) > _MOST_OUTPUT:
            self._truncated = True
            del kept[slice(_MOST_OUTPUT, None) if fd == 1 else slice(None, -_MOST_OUTPUT)]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self._drained.set()

    def process_exited(self) -> None:
        self._exited.set()

    async def to_the_end(self, input: bytes) -> int:
        """Feed it, wait for its end and then shortly for its last words; the exit code. A program
        that does not read its input to the end decides so; it has not failed."""
        if input:
            pipe = self._process.get_pipe_transport(0)
            assert isinstance(pipe, asyncio.WriteTransport)
            pipe.write(input)
            pipe.close()  # once all is written
        await self._exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS.total_seconds()):
                await self._drained.wait()
        code = self._process.get_returncode()
        assert code is not None, "told that it exited"
        return code

    def result(self, code: int, secrets: frozenset[str]) -> CommandResult:
        """What is kept of it."""
        stdout, stderr = bytes(self._kept[1]), bytes(self._kept[2])
        return CommandResult(code, stdout, stderr, _said(stdout, stderr, secrets), self._truncated)

    async def end(self) -> None:
        """Let go of it; where it still runs, ask all that it started to end, then kill it. What
        cannot be killed (it waits for a dead file server) is left to the system after that."""
        try:
            if not self._exited.is_set():
                await self._end_group()
        finally:
            self._process.close()

    async def _end_group(self) -> None:
        self._signal(signal.SIGTERM)
        try:
            await self._wait_shortly()
        finally:
            self._signal(signal.SIGKILL)
        await self._wait_shortly()

    async def _wait_shortly(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE.total_seconds()):
                await self._exited.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.get_pid(), number)

    @property
    def _process(self) -> asyncio.SubprocessTransport:
        assert self._transport is not None, "not started"
        return self._transport


def _said(stdout: bytes, stderr: bytes, secrets: frozenset[str]) -> str:
    """The last words of stderr, or of stdout where there are none; first all, then cut, so that no
    half of a secret is left."""
    text = (stderr.strip() or stdout.strip())[-_CHUNK:].decode(errors="replace")
    one_line = " ".join(scrubbed(text, secrets).split())
    return one_line if len(one_line) <= _MOST_SAID else f"…{one_line[-_MOST_SAID:]}"


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith("PERSYS_") and not is_secret_name(name)
    }
    path = [each for each in kept.get("PATH", "").split(os.pathsep) if each]
    path += [each for each in _MORE_PATH if each not in path]
    return {**kept, "PATH": os.pathsep.join(path), "LC_ALL": "C.UTF-8"}
