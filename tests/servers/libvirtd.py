"""A private libvirtd: in mount and network namespaces of its own, so nothing of the host changes.

Its /etc/libvirt, /run, /var/lib/libvirt, /var/log/libvirt and /var/cache/libvirt are folders of the
test's. Guests outlive it, as they do in the field; ``stop`` ends them too, by their pid files.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from attrs import define, field

from tests.servers.required import absent

__all__ = ["Libvirtd", "libvirtd"]

READY_SECONDS = 30.0
WAIT_SECONDS = 10.0
_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"
_PROGRAMS = (
    "libvirtd", "virsh", "qemu-system-x86_64", "qemu-img", "dnsmasq", "ip", "unshare",
)  # fmt: skip
_QEMU_CONF = """\
user = "root"
group = "root"
remember_owner = 0
dynamic_ownership = 0
cgroup_controllers = [ ]
security_driver = "none"
stdio_handler = "file"
namespaces = [ ]
"""
_DAEMON_CONF = """\
unix_sock_dir = "{folder}/sock"
unix_sock_group = "root"
auth_unix_rw = "none"
auth_unix_ro = "none"
"""
# Guests and helpers are orphans, and libvirtd waits until they are reaped: a container's init may
# take its time. The reaper ends with the last of them.
_REAP = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""
# The namespaces' own mounts; the socket lies outside of them.
_ENTER = """\
set -e
mount --bind "$1/etc" /etc/libvirt
mount --bind "$1/lib" /var/lib/libvirt
mount --bind "$1/log" /var/log/libvirt
mount --bind "$1/cache" /var/cache/libvirt
for other in i386 x86_64-microvm; do
  [ ! -e /usr/bin/qemu-system-$other ] || mount --bind /dev/null /usr/bin/qemu-system-$other
done
mount --bind "$1/run" /run
ip link set lo up 2>/dev/null || true
exec "$2" --config "$1/libvirtd.conf" --pid-file "$1/libvirtd.pid"
"""


@define(eq=False)
class Libvirtd:
    """One server. It may be killed and started again; its guests and its domains stay."""

    folder: Path
    _reapers: list[subprocess.Popen[bytes]] = field(factory=list, init=False)

    @property
    def uri(self) -> str:
        """How libvirt's clients reach it."""
        return f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._lay_out()
        program = shutil.which("libvirtd", path=_PATH)
        inside = ["/bin/sh", "-c", _ENTER, "libvirtd", str(self.folder), str(program)]
        namespaces = ["unshare", "--mount", "--net", "--propagation", "private"]
        with (self.folder / "libvirtd.log").open("ab") as log:
            reaper = subprocess.Popen(
                [sys.executable, "-IS", "-c", _REAP, *namespaces, *inside],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._reapers.append(reaper)
        self._wait_until_ready(reaper)

    def _lay_out(self) -> None:
        for name in ("etc/qemu", "lib/qemu", "log/qemu", "cache", "run", "sock"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "etc/qemu.conf").write_text(_QEMU_CONF)
        (self.folder / "libvirtd.conf").write_text(_DAEMON_CONF.format(folder=self.folder))

    def _wait_until_ready(self, reaper: subprocess.Popen[bytes]) -> None:
        check = ["virsh", "-c", self.uri, "version"]
        for _ in range(int(READY_SECONDS / 0.1)):
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                return
            with suppress(subprocess.TimeoutExpired):
                reaper.wait(0.1)
                break
        raise AssertionError(f"no libvirtd: {(self.folder / 'libvirtd.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """End the daemon alone, at once."""
        file = self.folder / "libvirtd.pid"
        if file.exists():
            _kill_and_wait(int(file.read_text()))
            file.unlink(missing_ok=True)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """It answers nobody within the block."""
        pid = int((self.folder / "libvirtd.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def guest_pids(self) -> list[int]:
        """The QEMU processes that it started and that still run."""
        files = self.folder.glob("run/libvirt/qemu/*.pid")
        texts = [file.read_text() for file in files if file.name != "driver.pid"]
        return [int(text) for text in texts if Path(f"/proc/{text.strip()}").exists()]

    def stop(self) -> None:
        """End it, its guests and the helpers of its networks."""
        self.kill()
        helpers = self.folder.glob("run/libvirt/network/*.pid")
        for pid in [*self.guest_pids(), *(int(path.read_text()) for path in helpers)]:
            _kill_and_wait(pid)
        for reaper in self._reapers:
            try:
                reaper.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                reaper.kill()
                reaper.wait()


def _kill_and_wait(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        select.select([descriptor], [], [], WAIT_SECONDS)
    finally:
        os.close(descriptor)


def _missing() -> str:
    if find_spec("libvirt") is None:
        return "the libvirt module is not installed (persys-agent[vm])"
    for program in _PROGRAMS:
        if shutil.which(program, path=_PATH) is None:
            return f"there is no {program}"
    allowed = subprocess.run(
        ["unshare", "--mount", "--net", "true"], capture_output=True, check=False
    )
    return "" if allowed.returncode == 0 else "namespaces may not be made here"


@contextmanager
def libvirtd(folder: Path) -> Iterator[Libvirtd]:
    """A running libvirtd in ``folder`` (keep its path short: sockets); skips where none can be."""
    reason = _missing()
    if reason:
        absent("libvirtd", reason)
    server = Libvirtd(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
