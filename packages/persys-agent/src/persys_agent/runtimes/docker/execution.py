"""A command inside a container: its input, its output, its end.

Decided here: how long a command may take to begin (once it runs it has all the time it wants), and
what happens to one that nobody listens to any more. The Engine has no call that
ends one, so its processes are ended from the host, where they can be seen there (the agent and the
Engine share their view of processes); elsewhere the end of its input must do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from pathlib import Path

from aiodocker.execs import Exec
from aiodocker.stream import Stream
from attrs import frozen

from persys_agent.runtimes.docker.documents import Document, flag, number, text
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.port import (
    ExecExit,
    ExecOutput,
    FailureCode,
    RuntimeFailedError,
    RuntimeUnavailableError,
)

__all__ = ["STARTS_WITHIN", "Target", "run_inside", "target_of"]

STARTS_WITHIN = timedelta(seconds=15)
"""How long a command may take to begin; what hangs for longer is the Engine."""
_STDERR = 2
_END_OF_TRANSMISSION = b"\x04"
_END_POLLS = 40
_END_POLL_SECONDS = 0.05
_PROC = Path("/proc")


@frozen
class Target:
    """The container that a command runs in, and what people call it."""

    container_id: str
    name: str


def target_of(shown: Document, name: str) -> Target:
    """The container that the Engine shows. Raises ``RuntimeFailedError`` where it does not run."""
    status = text(shown, "State", "Status")
    if status != "running":
        code = number(shown, "State", "ExitCode")
        how = {"exited": f"ended with code {code}", "created": "not started"}.get(status, status)
        raise RuntimeFailedError(
            FailureCode.RUNTIME_ERROR,
            f"{name} is not running (its container: {how}), so no command can be run in it",
        )
    return Target(text(shown, "Id"), name)


async def run_inside(
    engine: Engine,
    find: Callable[[], Awaitable[Target]],
    command: Sequence[str],
    given: AsyncIterator[bytes],
    *,
    tty: bool,
    starts_within: timedelta = STARTS_WITHIN,
) -> AsyncGenerator[ExecOutput | ExecExit, None]:
    """What the command writes, then its end. Raises ``RuntimeFailedError``, and
    ``RuntimeUnavailableError`` where the Engine did not begin it in time."""
    target: Target | None = None
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(engine.translated())
            try:
                async with asyncio.timeout(starts_within.total_seconds()):
                    target = await find()
                    prepared = await engine.prepare_exec(target.container_id, command, tty)
                    stream: Stream = await prepared.start().__aenter__()
                    stack.push_async_callback(stream.close)
            except TimeoutError as error:
                raise _hangs(engine, starts_within) from error
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
                    await asyncio.shield(_end(engine, prepared, target.container_id))
        yield ExecExit(await _exit_code(engine, prepared))
    except EngineError as error:
        raise RuntimeFailedError(
            FailureCode.RUNTIME_ERROR, f"the command cannot be run: {_named(error, target)}"
        ) from error


def _hangs(engine: Engine, waited: timedelta) -> RuntimeUnavailableError:
    return RuntimeUnavailableError(
        f"the Docker daemon at {engine.endpoint} did not begin the command within"
        f" {waited.total_seconds():g} s, so it was given up; a daemon that only hangs may still"
        " begin it, without input"
    )


def _named(error: EngineError, target: Target | None) -> str:
    """What the Engine said, with the name that people know for its id."""
    said = str(error)
    return said if target is None else said.replace(target.container_id, target.name)


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
