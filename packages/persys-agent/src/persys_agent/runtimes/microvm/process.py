"""Processes that outlive the agent: started in a session of their own, found again by pid file.

Decided here: a process is told by its pid *and* the time it was started, so that a pid that was
given to somebody else meanwhile is never taken for ours, nor signalled. asyncio's subprocesses are
not used, since they kill their child when the loop ends. Waiting is for a pidfd, which works for
children and for what an earlier agent started alike.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

__all__ = ["ProcessId", "is_alive", "kill", "reap", "spawn", "wait_end"]

_STATE, _STARTED = 0, 19  # fields of /proc/<pid>/stat after the name in parentheses


@frozen
class ProcessId:
    """``started`` is in clock ticks since the host began."""

    pid: int
    started: int


def spawn(command: Sequence[str], output: Path) -> ProcessId:
    """Start a process whose output goes to the end of ``output``. Raises ``OSError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        {"PATH": os.environ.get("PATH", os.defpath)},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return ProcessId(pid, int(_stat(pid)[_STARTED]))


def is_alive(process: ProcessId) -> bool:
    """Whether it runs; one that ended and was not waited for does not."""
    fields = _stat(process.pid)
    return bool(fields) and int(fields[_STARTED]) == process.started and fields[_STATE] != "Z"


def reap(process: ProcessId) -> int | None:
    """The exit code of an ended child (128 and the signal's number after a signal).

    ``None`` for one that runs, and for one that an earlier agent started: nobody can tell its.
    """
    fields = _stat(process.pid)
    if not fields or int(fields[_STARTED]) != process.started:
        return None  # the pid is another's now, perhaps of another child of ours
    try:
        pid, status = os.waitpid(process.pid, os.WNOHANG)
    except ChildProcessError:
        return None
    if pid == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def kill(process: ProcessId) -> None:
    """End it at once; nothing where it has ended."""
    with suppress(ProcessLookupError, OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if is_alive(process):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


async def wait_end(process: ProcessId, seconds: float) -> bool:
    """Wait until it ends; ``False`` if it still runs after ``seconds``."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        if not is_alive(process):
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
        return not is_alive(process)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return text.rpartition(")")[2].split()
