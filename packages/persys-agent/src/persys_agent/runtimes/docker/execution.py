"""A command inside a container: its input, its output, its end.

Decided here: what happens to a command that nobody listens to any more. The Engine has no call that
ends one, so its processes are ended from the host, where they can be seen there (the agent and the
Engine share their view of processes); elsewhere the end of its input must do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from aiodocker.execs import Exec
from aiodocker.stream import Stream

from persys_agent.runtimes.docker.documents import flag, number
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.port import (
    ExecExit,
    ExecOutput,
    FailureCode,
    RuntimeFailedError,
    RuntimeUnavailableError,
)

__all__ = ["run_inside"]

_STDERR = 2
_END_OF_TRANSMISSION = b"\x04"
_END_POLLS = 40
_END_POLL_SECONDS = 0.05
_PROC = Path("/proc")


async def run_inside(
    engine: Engine,
    container_id: str,
    command: Sequence[str],
    given: AsyncIterator[bytes],
    *,
    tty: bool,
) -> AsyncGenerator[ExecOutput | ExecExit, None]:
    """What the command writes, then its end. Raises ``RuntimeFailedError``."""
    try:
        prepared = await engine.prepare_exec(container_id, command, tty)
        async with engine.translated(), prepared.start() as stream:
            feeding = asyncio.create_task(_feed(stream, given, tty=tty))
            has_ended = False
            try:
                while (message := await stream.read_out()) is not None:
                    name = "stderr" if message.stream == _STDERR else "stdout"
                    yield ExecOutput(bytes(message.data), name)
                has_ended = True
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
                if not has_ended:
                    await asyncio.shield(_end(engine, prepared, container_id))
        yield ExecExit(await _exit_code(engine, prepared))
    except EngineError as error:
        raise RuntimeFailedError(
            FailureCode.RUNTIME_ERROR, f"the command cannot be run: {error}"
        ) from error


async def _feed(stream: Stream, given: AsyncIterator[bytes], *, tty: bool) -> None:
    """Write the input and close that half; a command that has ended reads no more."""
    try:
        async for data in given:
            await stream.write_in(data)
        if tty:
            await stream.write_in(_END_OF_TRANSMISSION)
    except (OSError, RuntimeError, AssertionError):
        return
    finally:
        if not tty:  # the Engine would give up the output of a terminal with its input
            _close_input(stream)


def _close_input(stream: Stream) -> None:
    """Close the half that the command reads; aiodocker itself can only close both."""
    connection = stream._resp.connection if stream._resp else None
    transport = connection.transport if connection else None
    if transport is not None and transport.can_write_eof():
        transport.write_eof()


async def _exit_code(engine: Engine, prepared: Exec) -> int:
    """The code; the Engine closes the output a moment before it knows of the end."""
    for _ in range(_END_POLLS):
        state = await engine.exec_state(prepared)
        if not flag(state, "Running"):
            return number(state, "ExitCode")
        await asyncio.sleep(_END_POLL_SECONDS)
    raise RuntimeFailedError(
        FailureCode.RUNTIME_ERROR, "the command closed its output and runs on; its end is unknown"
    )


async def _end(engine: Engine, prepared: Exec, container_id: str) -> None:
    """End what still runs; its output may be there a moment before the Engine knows its number."""
    with suppress(EngineError, RuntimeUnavailableError):
        for _ in range(_END_POLLS):
            state = await engine.exec_state(prepared)
            pid = number(state, "Pid")
            if not flag(state, "Running"):
                return
            if pid > 1:
                await asyncio.to_thread(_kill, pid, container_id)
                return
            await asyncio.sleep(_END_POLL_SECONDS)


def _kill(pid: int, container_id: str) -> None:
    """End a process and its descendants, if they really are of that container."""
    for each in [*_descendants(pid), pid]:
        if _is_inside(each, container_id):
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)


def _is_inside(pid: int, container_id: str) -> bool:
    """Whether what the host calls by this number belongs to the container, by its cgroup."""
    try:
        return container_id in (_PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return False


def _descendants(pid: int) -> Iterator[int]:
    try:
        found = (_PROC / str(pid) / "task" / str(pid) / "children").read_text().split()
    except OSError:
        return
    for each in map(int, found):
        yield from _descendants(each)
        yield each
