"""A container specification of a request, checked and with its defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from persys_core.model.spec import ContainerSpec, ManagedVolume, PortMapping, VolumeMount
from persys_core.model.states import RestartPolicy
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import environment, managed_volumes, texts
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_COMMAND_WORDS, MAX_PORTS, MAX_VOLUMES

__all__ = ["container_spec"]

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,1022}\Z")
_DIGEST = re.compile(r"@[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}\Z")
_RESTART = {str(policy): policy for policy in RestartPolicy}
_PROTOCOLS = {"tcp": "tcp", "udp": "udp", "sctp": "sctp"}
_MAX_PORT = 65535


def container_spec(fields: Fields, message: pb.ContainerSpec) -> ContainerSpec:
    """The container that ``message`` describes; every wrong field goes to ``fields``."""
    spec = ContainerSpec(
        image=_image(fields, message.image),
        command=texts(fields, "command", message.command, at_most=MAX_COMMAND_WORDS),
        env=environment(fields, "env", message.env),
        volumes=_mounts(fields, message.volumes),
        ports=_ports(fields, message.ports),
        restart_policy=fields.word(
            "restart_policy", message.restart_policy, _RESTART, RestartPolicy.NO
        ),
        privileged=message.privileged,
        managed_volumes=managed_volumes(fields, message.managed_volumes),
    )
    _mount_points(fields, spec.volumes, spec.managed_volumes)
    return spec


def _image(fields: Fields, value: str) -> str:
    image = value.strip()
    if not image:
        fields.add("image", "image is required")
    elif "@" in _DIGEST.sub("", image):
        fields.add(
            "image",
            "may not hold credentials (a text before an @, not shown here); accepted is"
            " registry/name:tag, and the agent's machine logs in to the registry",
        )
    elif not _IMAGE.match(image):
        fields.add("image", f"{quoted(value)} is not valid; accepted is registry/name:tag")
    return image


def _mounts(fields: Fields, messages: Sequence[pb.VolumeMount]) -> tuple[VolumeMount, ...]:
    fields.count("volumes", len(messages), MAX_VOLUMES)
    return tuple(
        _mount(fields.item("volumes", index), message) for index, message in enumerate(messages)
    )


def _mount(fields: Fields, message: pb.VolumeMount) -> VolumeMount:
    return VolumeMount(
        host_path=fields.absolute_path("host_path", message.host_path),
        container_path=fields.absolute_path("container_path", message.container_path),
        read_only=message.read_only,
    )


def _ports(fields: Fields, messages: Sequence[pb.Port]) -> tuple[PortMapping, ...]:
    fields.count("ports", len(messages), MAX_PORTS)
    ports = tuple(
        _port(fields.item("ports", index), message) for index, message in enumerate(messages)
    )
    on_host = [(p.host_port, p.protocol) if p.host_port else None for p in ports]
    place = fields.inside("ports")
    place.unique("host_port", on_host, "host port and protocol")
    place.unique(
        "container_port",
        [(p.container_port, p.protocol) for p in ports],
        "container port and protocol",
    )
    return ports


def _port(fields: Fields, message: pb.Port) -> PortMapping:
    return PortMapping(
        host_port=fields.amount("host_port", message.host_port, _MAX_PORT, "(0: any free port)"),
        container_port=fields.amount(
            "container_port", message.container_port, _MAX_PORT, "as a port", at_least=1
        ),
        protocol=fields.word("protocol", message.protocol, _PROTOCOLS, "tcp"),
    )


def _mount_points(
    fields: Fields, mounts: Sequence[VolumeMount], managed: Sequence[ManagedVolume]
) -> None:
    """Nothing may be mounted twice at one place, whichever list it comes from."""
    points = [mount.container_path for mount in mounts]
    fields.inside("volumes").unique("container_path", points, "container path")
    for index, volume in enumerate(managed):
        earlier = [*points, *(other.mount_path for other in managed[:index])]
        if volume.mount_path and volume.mount_path in earlier:
            fields.item("managed_volumes", index).add(
                "mount_path", "is mounted on already; accepted is a place of its own"
            )
