"""The small door of the chaos runs: whoever is not ready gets nothing and keeps nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from attrs import define

from proofs.chaos.front import own_door


@define
class FakeReplica:
    """Says its name to whoever connects, then waits for the end."""

    name: str
    address: str = ""
    ready: bool = True

    async def look(self) -> bool:
        """As it was told."""
        return self.ready

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[FakeReplica]:
        """The server, while this is open."""

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(self.name.encode() + b"\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()


@define
class Session:
    """A session through the door that reached somebody: whom."""

    name: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def to(cls, address: str) -> Session:
        """Try until somebody is reached."""
        port = int(address.rpartition(":")[2])
        async with asyncio.timeout(5):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                session = cls("", reader, writer)
                with suppress(ConnectionResetError):
                    session.name = (await reader.readline()).decode().strip()
                if session.name:
                    return session
                await session.end()
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Close it."""
        self.writer.close()
        with suppress(ConnectionResetError):
            await self.writer.wait_closed()


async def whom(address: str) -> str:
    """Who is reached."""
    session = await Session.to(address)
    await session.end()
    return session.name


@pytest.mark.asyncio
async def test_the_door_leaves_whoever_is_not_ready() -> None:
    """Sessions of a replica that is given up are broken; new ones go elsewhere."""
    async with (
        FakeReplica("a").serving() as a,
        FakeReplica("b", ready=False).serving() as b,
        own_door([a, b], 0.01) as door,
    ):
        assert {await whom(door) for _ in range(4)} == {"a"}
        session = await Session.to(door)

        a.ready, b.ready = False, True
        async with asyncio.timeout(5):
            with pytest.raises((ConnectionResetError, EOFError)):
                await session.reader.readexactly(1)
        await session.end()

        assert {await whom(door) for _ in range(4)} == {"b"}
        a.ready = True
        async with asyncio.timeout(5):
            while await whom(door) != "a":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
