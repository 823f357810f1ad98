"""A line to a server that can be held, as a network that carries nothing, and cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

__all__ = ["Line", "line_to"]

_CHUNK = 1 << 16


class Line:
    """A TCP proxy on a free loopback port; made by ``to``."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._gates: set[asyncio.Event] = set()
        self._is_held = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""
        self.tap: Callable[[bytes], object] | None = None
        """Is shown everything that goes to the server, before it goes."""
        self.hold_at = b""
        """A connection on which these bytes are to go to the server is held from then on."""
        self.refuses = False
        """New connections are broken at once."""
        self.connections = 0
        """How many were taken so far."""

    @classmethod
    async def to(cls, target: str) -> Line:
        """A line to ``host:port``."""
        line = cls(target)
        line._server = await asyncio.start_server(line._accept, "127.0.0.1", 0)
        line.endpoint = f"127.0.0.1:{line._server.sockets[0].getsockname()[1]}"
        return line

    def lead_to(self, target: str) -> None:
        """Lead to another ``host:port`` from now on."""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    def hold(self) -> None:
        """Carry nothing from now on; connections stay open, and new ones are taken."""
        self._is_held = True
        for gate in self._gates:
            gate.clear()

    def go_on(self) -> None:
        """Carry what was held back, and everything else."""
        self._is_held, self.hold_at = False, b""
        for gate in self._gates:
            gate.set()

    @property
    def holds_back(self) -> bool:
        """Whether any connection is held."""
        return not all(gate.is_set() for gate in self._gates)

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
        if self.refuses:
            writer.transport.abort()
            return
        self.connections += 1
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
        """Carry one connection from ``reader`` and ``writer`` to the server."""
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        gate = asyncio.Event()
        if not self._is_held:
            gate.set()
        self._gates.add(gate)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, back, gate, self._look))
                both.create_task(self._pump(there, writer, gate))
        finally:
            self._gates.discard(gate)
            back.transport.abort()

    def _look(self, chunk: bytes, gate: asyncio.Event) -> None:
        if self.tap is not None:
            self.tap(chunk)
        if self.hold_at and self.hold_at in chunk:
            gate.clear()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        gate: asyncio.Event,
        look: Callable[[bytes, asyncio.Event], None] | None = None,
    ) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK):
                if look is not None:
                    look(chunk, gate)
                await gate.wait()
                sink.write(chunk)
                await sink.drain()
        sink.close()


@asynccontextmanager
async def line_to(target: str) -> AsyncIterator[Line]:
    """A line to ``host:port`` that ends with the block."""
    line = await Line.to(target)
    try:
        yield line
    finally:
        await line.aclose()
