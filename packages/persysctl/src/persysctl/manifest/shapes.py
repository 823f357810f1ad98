"""The parts of spec that have a shape of their own: ports, volumes, resources, compose, vm.

Decided here: their keys, short forms and bounds. Not decided here: which type needs which of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from persysctl.manifest import units
from persysctl.manifest.section import Item, Section
from persysctl.manifest.tree import Scalar

__all__ = [
    "Compose",
    "Disk",
    "ManagedVolume",
    "Network",
    "Port",
    "Resources",
    "Vm",
    "Volume",
    "read_command",
    "read_compose",
    "read_env",
    "read_managed_volumes",
    "read_ports",
    "read_resources",
    "read_vm",
    "read_volumes",
]

MAX_PORT = 65535
MAX_VCPUS = 1024
PROTOCOLS = ("tcp", "udp", "sctp")
DRIVERS = ("local", "nfs", "ceph-rbd")
RETAIN_POLICIES = ("Delete", "Retain")
_PORT = re.compile(r"((?P<host>[0-9]{1,5}):)?(?P<container>[0-9]{1,5})(/(?P<protocol>\w+))?\Z")


@dataclass(frozen=True, slots=True)
class Port:
    """A container port; host 0 lets the agent choose."""

    container: int
    host: int = 0
    protocol: str = "tcp"


@dataclass(frozen=True, slots=True)
class Volume:
    """A path of the host inside the container."""

    host: str
    container: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ManagedVolume:
    """A volume that Persys provisions; size in GB."""

    name: str
    driver: str
    size_gb: int
    access_mode: str
    fs_type: str
    mount_path: str
    read_only: bool
    retain_policy: str


@dataclass(frozen=True, slots=True)
class Resources:
    """What is asked for; ``None`` where it was not written."""

    cpu_millicores: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None


@dataclass(frozen=True, slots=True)
class Compose:
    """A Compose application: its text, the file that holds it, or a git repository."""

    text: str = ""
    file: Item | None = None
    git_url: str = ""
    git_ref: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of a machine; size in GB."""

    size_gb: int
    pool: str
    mount_point: str


@dataclass(frozen=True, slots=True)
class Network:
    """One network interface of a machine."""

    bridge: str
    dhcp: bool
    static_ip: str


@dataclass(frozen=True, slots=True)
class Vm:
    """A machine; memory in MB. ``cloud_init`` holds the four texts under the contract's names."""

    vcpus: int = 0
    memory_mb: int = 0
    os_image: str = ""
    disks: tuple[Disk, ...] = ()
    networks: tuple[Network, ...] = ()
    cloud_init: tuple[tuple[str, str], ...] = ()


def read_command(spec: Section) -> tuple[str, ...]:
    """``command`` followed by ``args``: the contract has one list for both."""
    return (*_texts(spec, "command"), *_texts(spec, "args"))


def _texts(spec: Section, key: str) -> tuple[str, ...]:
    child = spec.child(key)
    if child is not None and isinstance(child.node, Scalar) and not child.node.is_null:
        child.refuse('must be a list of words, such as ["sh", "-c", "echo hello"]')
        return ()
    return tuple(text for item in spec.items(key) if (text := item.text()) is not None)


def read_env(spec: Section) -> dict[str, str]:
    """Variables; values are texts as written."""
    env = spec.pairs("env")
    child = spec.child("env")
    for name in env:
        if child is not None and (not name.strip() or "=" in name):
            child.refuse(f"{name!r} is not a name of a variable")
    return env


def read_ports(spec: Section) -> tuple[Port, ...]:
    """Ports as mappings, or short as ``8080:80/tcp``."""
    ports = [(item, _port(item)) for item in spec.items("ports")]
    seen: set[tuple[int, str]] = set()
    for item, port in ports:
        if port is None or not port.host:
            continue
        if (port.host, port.protocol) in seen:
            item.refuse(f"host port {port.host}/{port.protocol} is used twice")
        seen.add((port.host, port.protocol))
    return tuple(port for _, port in ports if port is not None)


def _port(item: Item) -> Port | None:
    if isinstance(item.node, Scalar):
        return _short_port(item)
    section = item.section()
    if section is None:
        return None
    with section:
        section.require("container", "80")
        container = section.integer("container", 1, MAX_PORT)
        host = section.integer("host", 0, MAX_PORT)
        return Port(container, host, section.choice("protocol", PROTOCOLS) or "tcp")


def _short_port(item: Item) -> Port | None:
    text = item.text()
    if text is None:
        return None
    match = _PORT.match(text)
    protocol = ((match["protocol"] or "tcp") if match else "").lower()
    if match is None or protocol not in PROTOCOLS:
        item.refuse(f"{text!r} is not a port; write host:container, such as 8080:80 or 53:53/udp")
        return None
    host, container = int(match["host"] or 0), int(match["container"])
    if host > MAX_PORT or not 1 <= container <= MAX_PORT:
        item.refuse(f"{text!r}: ports go from 1 to {MAX_PORT}")
        return None
    return Port(container, host, protocol)


def read_volumes(spec: Section) -> tuple[Volume, ...]:
    """Host paths as mappings, or short as ``/host:/container:ro``."""
    return tuple(filter(None, map(_volume, spec.items("volumes"))))


def _volume(item: Item) -> Volume | None:
    if isinstance(item.node, Scalar):
        return _short_volume(item)
    section = item.section()
    if section is None:
        return None
    with section:
        section.require("host", "/srv/web")
        section.require("container", "/usr/share/nginx/html")
        return Volume(section.text("host"), section.text("container"), section.flag("readOnly"))


def _short_volume(item: Item) -> Volume | None:
    text = item.text()
    if text is None:
        return None
    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(parts) or parts[2:] not in ([], ["ro"], ["rw"]):
        item.refuse(f"{text!r} is not a volume; write /host/path:/container/path or …:ro")
        return None
    return Volume(parts[0], parts[1], parts[2:] == ["ro"])


def read_managed_volumes(spec: Section) -> tuple[ManagedVolume, ...]:
    """Volumes that Persys provisions."""
    return tuple(filter(None, map(_managed_volume, spec.items("managedVolumes"))))


def _managed_volume(item: Item) -> ManagedVolume | None:
    section = item.section()
    if section is None:
        return None
    with section:
        section.require("name", "data")
        section.require("size", "10Gi")
        return ManagedVolume(
            name=section.text("name"),
            driver=section.choice("driver", DRIVERS) or "local",
            size_gb=section.quantity("size", units.parse_disk_gb),
            access_mode=section.text("accessMode"),
            fs_type=section.text("fsType"),
            mount_path=section.text("mountPath"),
            read_only=section.flag("readOnly"),
            retain_policy=section.choice("retainPolicy", RETAIN_POLICIES),
        )


def read_resources(spec: Section) -> Resources:
    """What placement counts."""
    child = spec.child("resources")
    section = child.section() if child else None
    if section is None:
        return Resources()
    with section:
        cpu, memory, disk = (section.child(key) for key in ("cpu", "memory", "disk"))
        return Resources(
            cpu.parsed(units.parse_cpu_millicores) if cpu else None,
            memory.parsed(units.parse_memory_mb) if memory else None,
            disk.parsed(units.parse_disk_gb) if disk else None,
        )


def read_compose(spec: Section) -> Compose:
    """The Compose application, wherever its text is; files are read by the loader."""
    text = spec.text("compose")
    file = spec.child("composeFile")
    child = spec.child("git")
    git = child.section() if child else None
    if git is None:
        return Compose(text=text, file=file)
    with git:
        git.require("url", "https://git.example.org/shop.git")
        return Compose(text, file, git.text("url"), git.text("ref"))


def read_vm(spec: Section) -> Vm:
    """The machine."""
    child = spec.child("vm")
    section = child.section() if child else None
    if section is None:
        return Vm()
    with section:
        section.require("vcpus", "2")
        section.require("memory", "2Gi")
        return Vm(
            vcpus=section.integer("vcpus", 1, MAX_VCPUS),
            memory_mb=section.quantity("memory", units.parse_memory_mb),
            os_image=section.text("osImage"),
            disks=tuple(filter(None, map(_disk, section.items("disks")))),
            networks=tuple(filter(None, map(_network, section.items("networks")))),
            cloud_init=_cloud_init(section),
        )


def _disk(item: Item) -> Disk | None:
    section = item.section()
    if section is None:
        return None
    with section:
        section.require("size", "20Gi")
        size = section.quantity("size", units.parse_disk_gb)
        return Disk(size, section.text("pool"), section.text("mountPoint"))


def _network(item: Item) -> Network | None:
    section = item.section()
    if section is None:
        return None
    with section:
        return Network(section.text("bridge"), section.flag("dhcp"), section.text("staticIp"))


def _cloud_init(vm: Section) -> tuple[tuple[str, str], ...]:
    """The user data alone as a text, or the four texts by name."""
    child = vm.child("cloudInit")
    if child is None:
        return ()
    if isinstance(child.node, Scalar):
        return (("user_data", child.text() or ""),)
    section = child.section()
    if section is None:
        return ()
    with section:
        return (
            ("user_data", section.text("userData")),
            ("meta_data", section.text("metaData")),
            ("network_config", section.text("networkConfig")),
            ("vendor_data", section.text("vendorData")),
        )
