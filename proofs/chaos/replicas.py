"""Replicas of the server as processes, each on lines of its own to etcd that can be cut."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from tests.e2e.processes import BIN, free_port, server_environment
from tests.servers.line import Line

__all__ = ["Replica"]

READY_SECONDS = 40.0
END_SECONDS = 15.0


async def fetch(port: int, path: str, seconds: float) -> tuple[int, bytes]:
    """Ask a replica over HTTP; the status and the body. ``OSError``, ``TimeoutError``."""
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
            answer = await reader.read()
        finally:
            writer.transport.abort()
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split()
    if len(words) < 2:
        raise ConnectionResetError("no answer")
    return int(words[1]), body


@define(eq=False)
class Replica:
    """One `persys-server run`, whose port stays the same over restarts; made by ``create``.

    Size: a verb for each thing that can happen to a process and to its lines.
    """

    name: str
    folder: Path
    lines: Sequence[Line]
    environment: Mapping[str, str]
    port: int = field(factory=free_port)
    metrics_port: int = field(factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    is_paused: bool = False
    is_parted: bool = False
    instances: set[str] = field(factory=set)
    """The names that this replica had, one for each life."""

    @classmethod
    async def create(
        cls, name: str, folder: Path, etcd: Sequence[str], **environment: str
    ) -> Replica:
        """A replica that is not started yet, on lines to these endpoints of etcd."""
        home = folder / name
        home.mkdir()
        lines = [await Line.to(endpoint) for endpoint in etcd]
        env = server_environment(
            home,
            PERSYS_STORE="etcd",
            ETCD_ENDPOINTS=",".join(line.endpoint for line in lines),
            **environment,
        )
        return cls(name, home, lines, env)

    @property
    def address(self) -> str:
        """Where its API is."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_up(self) -> bool:
        """Whether its process is there and not stopped."""
        return self.process is not None and self.process.poll() is None and not self.is_paused

    @property
    def log(self) -> Path:
        """Everything that it wrote."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start the process; ``ready`` waits for it."""
        ports = ("--grpc-port", str(self.port), "--metrics-port", str(self.metrics_port))
        with self.log.open("ab") as sink:
            self.process = subprocess.Popen(
                [str(BIN / "persys-server"), "run", "--insecure", *ports],
                stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=dict(self.environment),
            )  # fmt: skip

    async def ready(self, seconds: float = READY_SECONDS) -> None:
        """Wait until it serves, and learn the name of this life. ``AssertionError`` if not."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.look():
                    if self.process is None or self.process.poll() is not None:
                        raise AssertionError(f"{self.name} ended: {self._tail()}")
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{self.name} does not serve: {self._tail()}") from None

    async def look(self) -> bool:
        """Whether it says that it is ready, within a second."""
        try:
            status, body = await fetch(self.metrics_port, "/readyz", 1.0)
            said = json.loads(body)
        except (OSError, TimeoutError, ValueError):
            return False
        if said.get("instance"):
            self.instances.add(str(said["instance"]))
        return status == 200

    async def metrics(self) -> str:
        """The text of its metrics page."""
        return (await fetch(self.metrics_port, "/metrics", 10.0))[1].decode()

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()
        self.is_paused = False

    async def stop(self) -> None:
        """End it cleanly."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self.process.wait, END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop in {END_SECONDS:g} s") from None

    def pause(self) -> None:
        """Stop it with SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def part(self) -> None:
        """Cut it off from etcd: nothing is carried, nothing is refused."""
        for line in self.lines:
            line.hold()
        self.is_parted = True

    def join(self, *, late: bool = False) -> None:
        """Undo ``part``: connections of before are broken, or with ``late`` deliver what waits."""
        for line in self.lines:
            if not late:
                line.cut()
            line.go_on()
        self.is_parted = False

    async def aclose(self) -> None:
        """End everything of it."""
        self.kill()
        for line in self.lines:
            await line.aclose()

    def _tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:] if self.log.exists() else "no log"
