"""A door in front of the replicas: HAProxy where it is installed, else a small one of our own.

Both look at `GET /readyz`, since a process that is stopped still takes connections, and break the
sessions of a replica that they give up.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from proofs.chaos.replicas import Replica
from tests.e2e.processes import free_port
from tests.servers.line import Line

__all__ = ["Backend", "front", "haproxy_configuration", "own_door"]

LOOK_SECONDS = 0.5
FAILURES = 2


class Backend(Protocol):
    """What a door needs to know of a replica."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    async def look(self) -> bool:
        """Whether it is ready."""
        ...


@asynccontextmanager
async def front(replicas: Sequence[Replica], folder: Path) -> AsyncIterator[str]:
    """The address of a door to whichever replica is ready."""
    binary = shutil.which("haproxy")
    opened = own_door(replicas) if binary is None else _haproxy(binary, replicas, folder)
    async with opened as address:
        yield address


def haproxy_configuration(port: int, replicas: Sequence[Replica]) -> str:
    """TCP to the replicas that answer `/readyz` with 200."""
    servers = "\n".join(
        f"  server {each.name} {each.address} check port {each.metrics_port} inter 500ms"
        " fall 2 rise 1 on-marked-down shutdown-sessions"
        for each in replicas
    )
    return (
        "defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1h\n  timeout server 1h\n"
        "  timeout check 1s\n"
        f"listen persys\n  bind 127.0.0.1:{port}\n  balance roundrobin\n"
        "  option httpchk GET /readyz\n  http-check expect status 200\n"
        f"  option redispatch\n  retries 3\n{servers}\n"
    )


@asynccontextmanager
async def _haproxy(binary: str, replicas: Sequence[Replica], folder: Path) -> AsyncIterator[str]:
    port, place = free_port(), folder / "haproxy.cfg"
    place.write_text(haproxy_configuration(port, replicas))
    with (folder / "haproxy.log").open("ab") as sink:
        process = await asyncio.create_subprocess_exec(
            binary, "-db", "-f", str(place), stdout=sink, stderr=sink
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def own_door(
    replicas: Sequence[Backend], look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[str]:
    """The address of the small door, which looks again after ``look_seconds``."""
    door = _Door(replicas)
    server = await asyncio.start_server(door.accept, "127.0.0.1", 0)
    looking = asyncio.create_task(door.look(look_seconds))
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        looking.cancel()
        server.close()
        door.close()
        await asyncio.gather(looking, *door.sessions, return_exceptions=True)


class _Door:
    """Sessions by replica; a new one goes to the next replica that is ready."""

    def __init__(self, replicas: Sequence[Backend]) -> None:
        self._replicas = replicas
        self._failures = {each.name: FAILURES for each in replicas}
        self._turn = count()
        self.sessions: dict[asyncio.Task[None], str] = {}

    async def look(self, pause: float) -> None:
        """Ask every replica again and again whether it is ready."""
        while True:
            answers = await asyncio.gather(*(each.look() for each in self._replicas))
            for replica, is_ready in zip(self._replicas, answers, strict=True):
                self._failures[replica.name] = 0 if is_ready else self._failures[replica.name] + 1
                if self._failures[replica.name] == FAILURES:
                    self._break(replica.name)
            await asyncio.sleep(pause)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        up = [each for each in self._replicas if self._failures[each.name] < FAILURES]
        task = asyncio.current_task()
        if not up or task is None:
            writer.transport.abort()
            return
        chosen = up[next(self._turn) % len(up)]
        self.sessions[task] = chosen.name
        try:
            with suppress(OSError):
                await Line(chosen.address).carry(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self.sessions.pop(task, None)

    def close(self) -> None:
        """Break every session."""
        for task in tuple(self.sessions):
            task.cancel()

    def _break(self, name: str) -> None:
        for task, chosen in tuple(self.sessions.items()):
            if chosen == name:
                task.cancel()
