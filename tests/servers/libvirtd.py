"""A private libvirtd: in mount and network namespaces of its own, so nothing of the host changes.

Its /etc/libvirt, /run, /var/lib/libvirt, /var/log/libvirt and /var/cache/libvirt are folders of the
test's. Guests outlive it, as they do in the field; ``stop`` ends them too, by their pid files.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from attrs import define, field

from tests.servers.required import absent

__all__ = ["Libvirtd", "libvirtd"]

READY_SECONDS = 30.0
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
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def uri(self) -> str:
        """How libvirt's clients reach it."""
        return f"qemu+unix:///system?socket={self.folder}/sock/libvirt-sock"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._lay_out()
        program = shutil.which("libvirtd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        with (self.folder / "libvirtd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--mount", "--net", "--propagation", "private", "/bin/sh", "-c", _ENTER,
                 "libvirtd", str(self.folder), str(program)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self._wait_until_ready()

    def _lay_out(self) -> None:
        for name in ("etc/qemu", "lib/qemu", "log/qemu", "cache", "run", "sock"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "etc/qemu.conf").write_text(_QEMU_CONF)
        (self.folder / "libvirtd.conf").write_text(_DAEMON_CONF.format(folder=self.folder))

    def _wait_until_ready(self) -> None:
        check = ["virsh", "-c", self.uri, "version"]
        deadline = READY_SECONDS / 0.1
        for _ in range(int(deadline)):
            assert self._process is not None
            if self._process.poll() is not None:
                break
            if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        raise AssertionError(f"no libvirtd: {(self.folder / 'libvirtd.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """End the daemon alone, at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def restart(self) -> None:
        """Kill it and start it again, off the event loop."""
        await asyncio.to_thread(self.kill)
        await asyncio.to_thread(self.start)

    def guest_pids(self) -> list[int]:
        """The QEMU processes that it started and that still run."""
        files = self.folder.glob("run/libvirt/qemu/*.pid")
        texts = [file.read_text() for file in files if file.name != "driver.pid"]
        return [int(text) for text in texts if Path(f"/proc/{text.strip()}").exists()]

    def stop(self) -> None:
        """End it, its guests and the helpers of its networks."""
        helpers = self.folder.glob("run/libvirt/network/*.pid")
        pids = [*self.guest_pids(), *(int(path.read_text()) for path in helpers)]
        self.kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _missing() -> str:
    if find_spec("libvirt") is None:
        return "the libvirt module is not installed (persys-agent[vm])"
    for program in ("libvirtd", "virsh", "qemu-system-x86_64", "qemu-img", "unshare"):
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
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
