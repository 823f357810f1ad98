"""Parts that several requests share: environments, labels, metadata, managed volumes, states."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from persys_core.model.resources import DISK, MAX_AMOUNT
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadType
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import (
    MAX_ENV,
    MAX_LABELS,
    MAX_MANAGED_VOLUMES,
    MAX_TEXT,
)

__all__ = [
    "DRIVERS",
    "WORKLOAD_TYPES",
    "desired_state_of",
    "environment",
    "labels_of",
    "managed_volumes",
    "texts",
]

DRIVERS = {
    "local": "local",
    "nfs": "nfs",
    "ceph-rbd": "ceph-rbd",
    "ceph_rbd": "ceph-rbd",
    "rbd": "ceph-rbd",
}
WORKLOAD_TYPES = {
    "container": WorkloadType.CONTAINER,
    "docker-container": WorkloadType.CONTAINER,
    "compose": WorkloadType.COMPOSE,
    "docker-compose": WorkloadType.COMPOSE,
    "git-compose": WorkloadType.COMPOSE,
    "vm": WorkloadType.VM,
    "microvm": WorkloadType.MICROVM,
    "micro-vm": WorkloadType.MICROVM,
    "firecracker": WorkloadType.MICROVM,
}
_DESIRED = {
    "running": DesiredState.RUNNING,
    "run": DesiredState.RUNNING,
    "start": DesiredState.RUNNING,
    "started": DesiredState.RUNNING,
    "stopped": DesiredState.STOPPED,
    "stop": DesiredState.STOPPED,
}
_ACCESS_MODES = {
    "readwriteonce": "ReadWriteOnce",
    "rwo": "ReadWriteOnce",
    "readonlymany": "ReadOnlyMany",
    "rox": "ReadOnlyMany",
    "readwritemany": "ReadWriteMany",
    "rwx": "ReadWriteMany",
}
_RETAIN = {"delete": "Delete", "retain": "Retain"}
_FILE_SYSTEM = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}\Z")
_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def desired_state_of(fields: Fields, value: str) -> DesiredState | None:
    """Running or Stopped; ``None`` where the request says nothing."""
    if value.strip().lower() in ("delete", "deleted"):
        fields.add("desired_state", f"{quoted(value)} is not valid; call DeleteWorkload instead")
        return None
    return fields.word("desired_state", value, _DESIRED, None)


def environment(fields: Fields, name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Environment variables; the messages never quote a value."""
    fields.count(name, len(values), MAX_ENV)
    for key, value in sorted(values.items()):
        if not key or "=" in key or len(key) > 256 or not key.isprintable():
            fields.add(
                f"{name}[{key[:64]!r}]",
                "not a variable's name; accepted are 1 to 256 printable characters without =",
            )
        fields.text(f"{name}[{key[:64]}]", value, at_most=MAX_TEXT, lines=True)
    return dict(values)


def labels_of(
    fields: Fields, name: str, values: Mapping[str, str], *, at_most: int = MAX_LABELS,
    value_length: int = 1024,
) -> dict[str, str]:  # fmt: skip
    """Labels or metadata: short plain keys, values of bounded length."""
    fields.count(name, len(values), at_most)
    for key, value in sorted(values.items()):
        if not key.strip() or len(key) > 253 or not key.isprintable():
            fields.add(
                f"{name}[{key[:64]!r}]",
                "not a key; accepted are 1 to 253 printable characters",
            )
        fields.text(f"{name}[{key[:64]}]", value, at_most=value_length, lines=True)
    return dict(values)


def texts(fields: Fields, name: str, values: Sequence[str], *, at_most: int) -> tuple[str, ...]:
    """A list of texts, each of which may hold several lines."""
    fields.count(name, len(values), at_most)
    for index, value in enumerate(values):
        fields.text(f"{name}[{index}]", value, at_most=MAX_TEXT, lines=True)
    return tuple(values)


def managed_volumes(
    fields: Fields, messages: Sequence[pb.ManagedVolumeSpec]
) -> tuple[ManagedVolume, ...]:
    """Managed volumes with their defaults filled in.

    Two names that differ only in case would be one volume on the agent, hence are refused.
    """
    name = "managed_volumes"
    fields.count(name, len(messages), MAX_MANAGED_VOLUMES)
    found = tuple(
        _managed_volume(fields.item(name, index), message) for index, message in enumerate(messages)
    )
    place = fields.inside(name)
    place.unique("name", [(v.driver, v.name.lower()) for v in found], "driver and name")
    return found


def _managed_volume(fields: Fields, message: pb.ManagedVolumeSpec) -> ManagedVolume:
    if not _VOLUME_NAME.match(message.name):
        fields.add(
            "name",
            f"{quoted(message.name)} is not valid; accepted are 1 to 128 characters of"
            " A-Z a-z 0-9 . _ - that begin with a letter or a digit",
        )
    driver = fields.word("driver", message.driver, DRIVERS, "local")
    return ManagedVolume(
        name=message.name,
        driver=driver,
        size_gb=fields.amount("size_gb", message.size_gb, MAX_AMOUNT[DISK], "GB"),
        access_mode=fields.word("access_mode", message.access_mode, _ACCESS_MODES, "ReadWriteOnce"),
        fs_type=_file_system(fields, message.fs_type, driver),
        mount_path=fields.absolute_path("mount_path", message.mount_path),
        read_only=message.read_only,
        retain_policy=fields.word("retain_policy", message.retain_policy, _RETAIN, "Delete"),
    )


def _file_system(fields: Fields, value: str, driver: str) -> str:
    given = value.strip().lower()
    if given and not _FILE_SYSTEM.match(given):
        fields.add("fs_type", f"{quoted(value)} is not valid; accepted is a name such as ext4, xfs")
    return given or ("ext4" if driver == "ceph-rbd" else "")
