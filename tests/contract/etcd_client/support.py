"""What the tests of the client share: a client per test, and a proxy that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from tests.servers.etcd import EtcdCluster

__all__ = ["Proxy", "client_of", "proxy_of"]


@asynccontextmanager
async def client_of(cluster: EtcdCluster, **changed: Any) -> AsyncIterator[EtcdClient]:
    """A client of all members."""
    async with EtcdClient(EtcdConfig(cluster.endpoints, **changed)) as client:
        yield client


class Proxy:
    """Passes bytes on to one endpoint, until it is told to `cut` or to `refuse`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.refuses = False
        self.endpoint = ""
        self.connections = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.endpoint = f"127.0.0.1:{port}"

    def cut(self) -> None:
        """Drop every connection that is open now."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def aclose(self) -> None:
        """Listen no more and drop everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        self.connections += 1
        onward, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        pair = (self._pass(reader, back), self._pass(onward, writer))
        self._tasks |= {asyncio.create_task(each) for each in pair}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(65_536):
                    writer.write(data)
                    await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()


@asynccontextmanager
async def proxy_of(target: str) -> AsyncIterator[Proxy]:
    """A proxy to ``target``."""
    proxy = Proxy(target)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.aclose()
