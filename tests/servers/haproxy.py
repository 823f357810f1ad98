"""HAProxy as a process, with the configuration of `deploy/ha` in front of replicas on loopback.

Each replica has an address of its own in 127.0.0.0/8 and all have the same two ports, as machines
have. Only names and ports of the file are replaced, so what is tried here is what is shipped.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from attrs import frozen

from tests.servers.required import absent

__all__ = ["CONFIGURATION", "Balancer", "balancer", "haproxy_binary"]

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "ha" / "haproxy.cfg"
_UP = re.compile(
    r'haproxy_server_status\{proxy="persys-grpc",server="([^"]+)",state="UP"\} 1(?:\.0)?$', re.M
)
_READY_SECONDS = 20.0


def haproxy_binary() -> str:
    """The program of the Debian package; skips, or fails where it is required, without it."""
    found = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if found is None:
        absent("haproxy", "haproxy is not installed; ./dev test --system installs it")
        raise AssertionError
    return found


@frozen
class Balancer:
    """A HAProxy that runs; ``address`` is where clients find the API."""

    address: str
    http_port: int
    own_port: int
    log: Path

    async def up(self) -> set[str]:
        """The names of the replicas that it sends clients to."""
        return set(_UP.findall(await asyncio.to_thread(self._page)))

    async def until_up(self, names: set[str], seconds: float = _READY_SECONDS) -> None:
        """Wait until it sends clients to exactly these."""
        seen: set[str] | None = None
        try:
            async with asyncio.timeout(seconds):
                while (seen := await self.up()) != names:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(
                f"not within {seconds:g} s: {sorted(names)} are up; seen: {seen};"
                f" {self.log.read_text()[-2000:]}"
            ) from None

    def _page(self) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.own_port}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""


def configured(hosts: Sequence[str], ports: tuple[int, int], own: tuple[int, int, int]) -> str:
    """The shipped configuration for replicas at ``hosts``, each with these two ports."""
    text = CONFIGURATION.read_text()
    for number, host in enumerate(hosts, 1):
        for shipped, port in zip((8085, 8084), ports, strict=True):
            text = text.replace(f" scheduler-{number}:{shipped}", f" {host}:{port}")
    text = text.replace("check port 8084", f"check port {ports[1]}")
    for shipped, port in zip((8085, 8084, 8405), own, strict=True):
        text = text.replace(f"bind :{shipped}", f"bind 127.0.0.1:{port}")
    return text


@asynccontextmanager
async def balancer(
    folder: Path, hosts: Sequence[str], ports: tuple[int, int], own: tuple[int, int, int]
) -> AsyncIterator[Balancer]:
    """HAProxy in front of three replicas. ``ports``: of their gRPC and HTTP; ``own``: of the API,
    of HTTP and of its own metrics."""
    binary = haproxy_binary()
    file, log = folder / "haproxy.cfg", folder / "haproxy.log"
    file.write_text(configured(hosts, ports, own))
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            binary, "-db", "-f", str(file), stdout=sink, stderr=sink
        )
    try:
        yield Balancer(f"127.0.0.1:{own[0]}", own[1], own[2], log)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
