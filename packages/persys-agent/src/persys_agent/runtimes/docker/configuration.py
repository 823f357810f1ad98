"""An order as the Engine's description of a container.

Decided here: what of a spec becomes what, and which specs are refused before the Engine is asked.
Limits are limits (``NanoCpus``, ``Memory`` with swap included), never weights (defect 26). Volumes
are mounts and not binds: the Engine refuses a source that is not there, where a bind would make an
empty folder of root's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from posixpath import isabs, normpath

from attrs import frozen

from persys_agent.runtimes.docker.documents import Document, items, text
from persys_agent.runtimes.docker.labels import work_labels
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import (
    AttachedVolume,
    FailureCode,
    Order,
    Owner,
    RuntimeFailedError,
)
from persys_core.model.resources import CPU, MEMORY, Resources
from persys_core.model.spec import ContainerSpec, PortMapping, VolumeMount

__all__ = [
    "HEALTH",
    "KIND",
    "LEAST_MEMORY_MB",
    "KeptVolume",
    "configuration",
    "container_body",
    "environment",
    "health_check",
    "kept_volumes",
    "memory_limit",
    "port_bindings",
]

KIND = "docker"
"""The value of the label that says which runtime a container is of."""
HEALTH = "persys.agent.health."
LEAST_MEMORY_MB = 6
"""The Engine takes no lower limit."""
_COMPOSE_LABELS = "com.docker.compose."
_NANOS_PER_MILLICORE = 1_000_000
_LEAST_MILLICORES = 10
_BYTES_PER_MB = 1024 * 1024
_NANOS_PER_SECOND = 1_000_000_000
_LAST_PORT = 65535
_PROTOCOLS = frozenset({"tcp", "udp", "sctp"})
_DURATIONS = {"interval": "Interval", "timeout": "Timeout", "start_period": "StartPeriod"}


@frozen
class KeptVolume:
    """A volume that the image asked for and the Engine made, taken over by the next revision."""

    name: str
    path: str


def kept_volumes(shown: Document) -> tuple[KeptVolume, ...]:
    """The volumes of a container that only the Engine knows."""
    return tuple(
        KeptVolume(text(each, "Name"), text(each, "Destination"))
        for each in items(shown, "Mounts")
        if text(each, "Type") == "volume"
    )


def container_body(order: Order) -> ContainerSpec:
    """The container that is ordered. Raises ``RuntimeFailedError`` for another kind."""
    if not isinstance(order.spec.body, ContainerSpec):
        raise _invalid(f"a {order.spec.type} is nothing that Docker runs")
    if not order.spec.body.image.strip():
        raise _invalid("no image is named")
    return order.spec.body


def configuration(
    order: Order, owner: Owner, settings: DockerSettings, kept: Sequence[KeptVolume] = ()
) -> Document:
    """The body of the Engine's create call. Raises ``RuntimeFailedError``."""
    body = container_body(order)
    labels = {
        name: value
        for name, value in order.spec.metadata.items()
        if not name.startswith(_COMPOSE_LABELS)  # these would make it part of an application
    }
    config: dict[str, object] = {
        "Image": body.image,
        "Env": environment(body.env),
        "Labels": labels | work_labels(owner, order, KIND),
        "ExposedPorts": {_port_key(each): {} for each in body.ports},
        "HostConfig": _host_config(order, body, settings, kept),
    }
    if body.command:
        config["Cmd"] = list(body.command)
    if check := health_check(order.spec.metadata):
        config["Healthcheck"] = check
    return config


def _host_config(
    order: Order, body: ContainerSpec, settings: DockerSettings, kept: Sequence[KeptVolume]
) -> Document:
    if body.privileged and not settings.allow_privileged:
        raise _invalid(
            "privileged containers are not allowed on this node; take privileged out of the spec,"
            " or have the node's operator set allow_privileged"
        )
    resources = order.spec.resources
    memory = memory_limit(resources)
    return {
        "NanoCpus": _cpu_limit(resources) * _NANOS_PER_MILLICORE,
        "Memory": memory,
        "MemorySwap": memory,
        "Privileged": body.privileged,
        "RestartPolicy": {"Name": str(body.restart_policy)},
        "PortBindings": port_bindings(body.ports, settings.publish_address),
        "Mounts": _mounts(order, body, kept),
    }


def _cpu_limit(resources: Resources) -> int:
    """In millicores; 0 is none. The kernel takes no less than the least one, so who asks for less
    gets that."""
    wanted = resources.amounts.get(CPU, 0)
    return max(wanted, _LEAST_MILLICORES) if wanted else 0


def memory_limit(resources: Resources) -> int:
    """In bytes; 0 is none. Raises ``RuntimeFailedError`` for less than the Engine takes."""
    wanted = resources.amounts.get(MEMORY, 0)
    if 0 < wanted < LEAST_MEMORY_MB:
        raise _invalid(
            f"a memory limit of {wanted} MB is less than a container can have:"
            f" ask for {LEAST_MEMORY_MB} or more, or for none"
        )
    return wanted * _BYTES_PER_MB


def environment(env: Mapping[str, str]) -> list[str]:
    """As the Engine has it. Raises ``RuntimeFailedError``."""
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise _invalid(f"{name!r} is no name of an environment variable")
    return [f"{name}={value}" for name, value in env.items()]


def _port_key(port: PortMapping) -> str:
    protocol = port.protocol.lower()
    if protocol not in _PROTOCOLS:
        raise _invalid(f'protocol "{port.protocol}" is not one of {", ".join(sorted(_PROTOCOLS))}')
    if not 0 < port.container_port <= _LAST_PORT:
        raise _invalid(f"{port.container_port} is no port of a container")
    return f"{port.container_port}/{protocol}"


def port_bindings(ports: Iterable[PortMapping], address: str = "") -> Document:
    """Several host ports for one container port are all bound (defect 29). Raises
    ``RuntimeFailedError``."""
    bindings: defaultdict[str, list[Document]] = defaultdict(list)
    for each in ports:
        if not 0 <= each.host_port <= _LAST_PORT:
            raise _invalid(f"{each.host_port} is no port of a host")
        host_port = str(each.host_port) if each.host_port else ""
        bindings[_port_key(each)].append({"HostIp": address, "HostPort": host_port})
    return bindings


def _mounts(order: Order, body: ContainerSpec, kept: Sequence[KeptVolume]) -> list[Document]:
    mounts = [_bind(each) for each in body.volumes]
    attached = {each.volume.name: each for each in order.volumes}
    for volume in body.managed_volumes:
        mounts.append(_managed(volume.name, attached.get(volume.name)))
    taken = [str(each["Target"]) for each in mounts]
    if double := sorted({each for each in taken if taken.count(each) > 1}):
        raise _invalid(f"several volumes are to be mounted at {', '.join(double)}")
    return mounts + [
        {"Type": "volume", "Source": each.name, "Target": each.path}
        for each in kept
        if each.path not in taken
    ]


def _bind(mount: VolumeMount) -> Document:
    return {
        "Type": "bind",
        "Source": _absolute(mount.host_path),
        "Target": _absolute(mount.container_path),
        "ReadOnly": mount.read_only,
    }


def _managed(name: str, attached: AttachedVolume | None) -> Document:
    if attached is None or not attached.path:
        raise RuntimeFailedError(
            FailureCode.VOLUME_FAILED, f'volume "{name}" is not attached as a folder'
        )
    return {
        "Type": "bind",
        "Source": attached.path,
        "Target": _absolute(attached.volume.mount_path),
        "ReadOnly": attached.volume.read_only,
    }


def _absolute(path: str) -> str:
    if not isabs(path) or "\0" in path:
        raise _invalid(f"{path!r} is not an absolute path")
    return normpath(path)


def health_check(metadata: Mapping[str, str]) -> Document:
    """The check that the metadata describes; without a command that of the image, timed so.

    Raises ``RuntimeFailedError``.
    """
    check: dict[str, object] = {}
    if command := metadata.get(f"{HEALTH}command", ""):
        check["Test"] = ["CMD-SHELL", command]
    for name, field in _DURATIONS.items():
        if given := metadata.get(HEALTH + name, ""):
            check[field] = int(_positive(HEALTH + name, given) * _NANOS_PER_SECOND)
    if given := metadata.get(f"{HEALTH}retries", ""):
        check["Retries"] = int(_positive(f"{HEALTH}retries", given))
    return check


def _positive(name: str, given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0.001 <= value <= 1e6:
        raise _invalid(f'{name} "{given}" is not between 0.001 and 1000000')
    return value


def _invalid(message: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, message)
