"""A line to a server that can be held, as a network that carries nothing, and cut."""

from __future__ import annotations

import asyncio
from contextlib import suppress

__all__ = ["Line"]

_CHUNK = 1 << 16


class Line:
    """A TCP proxy on a free loopback port; made by ``to``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    @classmethod
    async def to(cls, target: str) -> Line:
        """A line to ``host:port``."""
        line = cls(target)
        line._server = await asyncio.start_server(line._accept, "127.0.0.1", 0)
        line.endpoint = f"127.0.0.1:{line._server.sockets[0].getsockname()[1]}"
        return line

    def hold(self) -> None:
        """Carry nothing from now on; connections stay open, and new ones are taken."""
        self._open.clear()

    def go_on(self) -> None:
        """Carry what was held back, and everything else."""
        self._open.set()

    def cut(self) -> None:
        """Break every connection; new ones are taken."""
        for task in tuple(self._tasks):
            task.cancel()

    async def aclose(self) -> None:
        """End it."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self.carry(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection from ``reader`` and ``writer`` to the target."""
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back))
                both.create_task(self._pump(there, writer))
        finally:
            back.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK):
                await self._open.wait()
                sink.write(chunk)
                await sink.drain()
        sink.close()
