"""Programs that are run to their end, with a bounded time and a bounded output.

Decided here: what becomes of a program that takes too long or that nobody waits for any more: it is
ended with everything that it started.
"""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

__all__ = ["CommandResult", "CommandRunner", "SubprocessRunner"]

_KEPT_BYTES = 64 * 1024
_CHUNK_BYTES = 16 * 1024


class CommandResult(NamedTuple):
    """How a program ended, and the end of what it wrote."""

    code: int
    stdout: str
    stderr: str


class CommandRunner(Protocol):
    """Whoever runs programs for a runtime."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        timeout: timedelta,
        input: bytes = b"",
    ) -> CommandResult:
        """Run it to its end. Raises ``TimeoutError``, and ``OSError`` where it cannot be run."""
        ...


class SubprocessRunner:
    """Implements ``CommandRunner``."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        timeout: timedelta,
        input: bytes = b"",
    ) -> CommandResult:
        """Run it in a process group of its own, with exactly this environment."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=dict(env),
            cwd=cwd,
            stdin=PIPE if input else DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                stdout, stderr, _ = await asyncio.gather(
                    _tail(process.stdout), _tail(process.stderr), _feed(process, input)
                )
                return CommandResult(await process.wait(), stdout, stderr)
        finally:
            await asyncio.shield(_end(process))


async def _feed(process: Process, given: bytes) -> None:
    if process.stdin is not None:
        with suppress(ConnectionError):
            process.stdin.write(given)
            await process.stdin.drain()
            process.stdin.close()


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """The last of what is written, to its end; all of it is read, so that nobody has to wait."""
    kept = b""
    while stream is not None and (data := await stream.read(_CHUNK_BYTES)):
        kept = (kept + data)[-_KEPT_BYTES:]
    return kept.decode(errors="replace")


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
