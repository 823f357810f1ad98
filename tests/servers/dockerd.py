"""A private dockerd of the Debian package, with a container image that needs no registry.

Each daemon has a bridge and addresses of its own and touches no firewall, so that several can run
on one host, beside one that the host itself has. Ports are published by the userland proxy. Its
folder is short, since unix sockets have short names.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.servers.required import absent

__all__ = ["IMAGE", "Dockerd", "compose_binary", "run_dockerd"]

IMAGE = "local/busybox:1"
_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin:/usr/local/bin"
_BUSYBOX = Path("/bin/busybox")
_READY_SECONDS = 30.0
_NUMBERS = count()


def _binary(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is None or os.geteuid() != 0 or not _BUSYBOX.exists():
        absent(
            "dockerd",
            f"{name} is not installed, or nobody may start it; ./dev test --system installs it",
        )
        raise AssertionError
    return found


def compose_binary() -> str:
    """Debian's docker-compose; skips, or fails where it is required, without it."""
    found = shutil.which("docker-compose", path=_PATH)
    if found is None:
        absent("docker-compose", "docker-compose is not installed; ./dev test --system does it")
        raise AssertionError
    return found


class Dockerd:
    """A daemon that runs; ``endpoint`` is how clients find it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = (os.getpid() * 7 + next(_NUMBERS)) % 250
        self._bridge = f"pt{os.getpid() % 100000}x{self._number}"
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = folder / "d.sock"
        self.endpoint = f"unix://{self.socket}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            *(_binary("dockerd"), "--data-root", str(self._folder / "data")),
            *("--exec-root", str(self._folder / "exec"), "--host", self.endpoint),
            *("--pidfile", str(self._folder / "pid"), "--bridge", self._bridge),
            *("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
            *("--default-address-pool", f"base=198.19.{self._number}.0/24,size=28"),
        ]
        self._have_bridge()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                absent("dockerd", f"dockerd does not start here: {self.log()[-1500:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it with all that it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_READY_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End the daemon alone, without a word: what it runs goes on until its next start."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let it answer nobody, as a machine that swaps does."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def clear(self) -> None:
        """Remove what a stopped daemon leaves on the host."""
        with suppress(OSError, subprocess.SubprocessError):
            _busybox("ip", "link", "del", self._bridge)
        for mount in sorted(_mounts_below(self._folder), key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)

    def log(self) -> str:
        """What the daemon wrote."""
        return (self._folder / "log").read_text(errors="replace")

    def import_image(self, reference: str = IMAGE, *more: str) -> None:
        """A two-megabyte image of Debian's static busybox, with ``more`` as a Dockerfile has it."""
        repository, _, tag = reference.rpartition(":")
        changes = ['CMD ["/bin/sh"]', "ENV PATH=/bin", *more]
        query = urlencode(
            {"fromSrc": "-", "repo": repository, "tag": tag, "changes": changes}, doseq=True
        )
        status, body = self.request("POST", f"/images/create?{query}", _busybox_layer())
        assert status == 200, body
        assert b'"error"' not in body, body

    def ask(self, method: str, path: str) -> object:
        """One call of the Engine's API; its answer as JSON, ``None`` where it has none."""
        status, body = self.request(method, path)
        assert status < 400, f"{method} {path}: {status} {body!r}"
        return json.loads(body) if body else None

    def containers(self) -> dict[str, Any]:
        """What each container is, by its name, as the Engine shows it."""
        shown: dict[str, Any] = {}
        for each in self._listed("/containers/json?all=1"):
            status, body = self.request("GET", f"/containers/{each['Id']}/json")
            if status == 200:  # else it was removed meanwhile
                found = json.loads(body)
                shown[found["Name"].removeprefix("/")] = found
        return shown

    def _listed(self, path: str) -> list[dict[str, Any]]:
        found: Any = self.ask("GET", path)
        return list(found)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            return self.request("GET", "/_ping")[0] == 200
        except OSError:
            return False

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Ask the daemon by hand: the status, and what it answered."""
        connection = http.client.HTTPConnection("localhost", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.connect(str(self.socket))
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def _have_bridge(self) -> None:
        if Path("/sys/class/net", self._bridge).exists():
            return
        try:
            _busybox("ip", "link", "add", self._bridge, "type", "bridge")
            _busybox("ip", "addr", "add", f"198.18.{self._number}.1/24", "dev", self._bridge)
            _busybox("ip", "link", "set", self._bridge, "up")
        except subprocess.CalledProcessError as error:
            absent("dockerd", f"no bridge can be made here: {error.stderr!r}")


def _busybox(*words: str) -> None:
    subprocess.run([str(_BUSYBOX), *words], check=True, capture_output=True)


def _mounts_below(folder: Path) -> list[str]:
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [each for each in points if each.startswith(f"{folder}/")]


def _busybox_layer() -> bytes:
    listed = subprocess.run([str(_BUSYBOX), "--list"], check=True, capture_output=True, text=True)
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as layer:
        layer.add(_BUSYBOX, "bin/busybox")
        for name in {*listed.stdout.split()} - {"busybox"}:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
        users = b"root:x:0:0::/:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size = len(users)
        layer.addfile(entry, io.BytesIO(users))
        for name in ("tmp", "data"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o777
            layer.addfile(folder)
    return sink.getvalue()


@contextmanager
def run_dockerd() -> Iterator[Dockerd]:
    """A daemon with the image; ended, and cleared away, with the block."""
    folder = Path(tempfile.mkdtemp(prefix="pd", dir="/tmp"))
    daemon = Dockerd(folder)
    try:
        daemon.start()
        daemon.import_image()
        yield daemon
    finally:
        daemon.stop()
        daemon.clear()
        shutil.rmtree(folder, ignore_errors=True)
