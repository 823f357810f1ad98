"""What the machine is: names, addresses, size.

Decided here: where each fact is read, and that one that cannot be read is empty, since none of them
is worth not starting for. What is made of names and addresses is ``settings.identity``'s decision.
"""

from __future__ import annotations

import platform
import socket
import uuid
from pathlib import Path

import psutil
from attrs import frozen

from persys_core.model.node import StoragePool

__all__ = ["HostFacts", "address_towards", "boot_id", "read_facts"]

_MIB = 1 << 20
_GIB = 1 << 30
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "i386": "386",
}
_MULTICAST_BIT = 1 << 40
"""Set by Python in an address that it had to make up."""


@frozen
class HostFacts:
    """The machine. Sizes in millicores, MiB and GiB; ``system`` and ``architecture`` are words of
    Go (``linux``, ``amd64``), as node labels have them; ``addresses`` are those of interfaces that
    are up."""

    hostname: str
    machine_id: str
    mac: str
    system: str
    architecture: str
    cpu_millicores: int
    memory_mb: int
    disk_gb: int
    addresses: tuple[str, ...] = ()

    @property
    def root_pool(self) -> StoragePool:
        """The pool that agents in the field register: the file system of ``/``."""
        return StoragePool("root", "local", self.disk_gb)


def read_facts() -> HostFacts:
    """Ask the machine. Blocks for some milliseconds."""
    machine = platform.machine().lower()
    return HostFacts(
        hostname=socket.gethostname(),
        machine_id=_line("/etc/machine-id"),
        mac=_mac(),
        system=platform.system().lower(),
        architecture=_ARCHITECTURES.get(machine, machine),
        cpu_millicores=(psutil.cpu_count(logical=True) or 1) * 1000,
        memory_mb=psutil.virtual_memory().total // _MIB,
        disk_gb=psutil.disk_usage("/").total // _GIB,
        addresses=_addresses(),
    )


def boot_id() -> str:
    """The kernel's id of this boot; empty where it has none. What runs in a container of its own
    kernel's shares it, so an agent adds the instant of its own start."""
    return _line("/proc/sys/kernel/random/boot_id")


def address_towards(target: str) -> str:
    """The local address that packets to ``target`` (``host:port``) leave from; empty where the
    system knows no way. Sends nothing, but may ask the name service."""
    host, _, port = target.rpartition(":")
    try:
        family, kind, _, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(place)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return ""


def _line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _mac() -> str:
    number = uuid.getnode()
    if number & _MULTICAST_BIT:
        return ""
    return ":".join(f"{number >> shift & 0xFF:02x}" for shift in range(40, -8, -8))


def _addresses() -> tuple[str, ...]:
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    return tuple(
        address.address.partition("%")[0]
        for name, addresses in psutil.net_if_addrs().items()
        if name in up
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    )
