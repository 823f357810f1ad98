"""The machine that a command line packed whole into ``persys.vm_spec_b64``.

The payload is standard base64 of a JSON object with the agent contract's field names. Unknown
names are passed over, as their writer does; a known name with a value of the wrong kind is an
error that names it. JSON spellings such as ``NaN``, ``1e400`` or ``true`` are no numbers here.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping

from persys_core.model.resources import DISK, MAX_AMOUNT, MEMORY
from persys_core.model.spec import CloudInit, DiskSpec, ManagedVolume, NetworkSpec, VmSpec
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import labels_of, managed_volumes
from persys_server.grpc.mapping.fields import Fields, printable
from persys_server.grpc.mapping.limits import MAX_TEXT
from persys_server.grpc.mapping.vm_in import (
    DEFAULT_DISK_FORMAT,
    DEFAULT_DISK_GB,
    check_machine,
)

__all__ = ["PAYLOAD_KEY", "payload_spec"]

PAYLOAD_KEY = "persys.vm_spec_b64"
_MAX_VCPUS = 100_000
_DISK_TYPES = {"disk": "disk", "cdrom": "cdrom"}
_CLOUD_INIT = (
    "user_data", "meta_data", "network_config", "vendor_data", "username", "ssh_public_key",
    "password",
)  # fmt: skip
_NETWORK = ("bridge", "network", "mac_address", "host_dev_name", "model")
_DISK = ("path", "device", "backing_file", "storage")


def payload_spec(fields: Fields, text: str) -> VmSpec:
    """The machine in ``text``; ``fields`` stands at the metadata entry."""
    reader = _Reader(fields, _decoded(fields, text))
    spec = VmSpec(
        vcpus=reader.number("vcpus", _MAX_VCPUS),
        memory_mb=reader.number("memory_mb", MAX_AMOUNT[MEMORY]),
        disks=tuple(map(_disk, reader.items("disks"))),
        networks=tuple(map(_network, reader.items("networks"))),
        cloud_init=_cloud_init(reader.inside("cloud_init_config")),
        cloud_init_text=reader.text("cloud_init", lines=True),
        os_image=reader.text("os_image"),
        disk_gb=reader.number("disk_gb", MAX_AMOUNT[DISK]),
        runtime=reader.text("runtime"),
        name=reader.text("name"),
        metadata=reader.labels("metadata"),
        managed_volumes=_volumes(fields, reader.items("managed_volumes")),
    )
    if reader.known:
        check_machine(fields, spec)
    return spec


def _decoded(fields: Fields, text: str) -> Mapping[str, object] | None:
    try:
        found = json.loads(base64.b64decode("".join(text.split()), validate=True))
    except (binascii.Error, ValueError, RecursionError):
        fields.add("", "cannot be read; accepted is base64 of a JSON object in UTF-8")
        return None
    if not isinstance(found, dict):
        fields.add("", "holds no JSON object; accepted is base64 of one")
        return None
    return found


class _Reader:
    """Reads typed values out of one JSON object, and reports what has the wrong kind."""

    def __init__(self, fields: Fields, values: Mapping[str, object] | None) -> None:
        self._fields = fields
        self._values = values or {}
        self.known = values is not None

    @property
    def fields(self) -> Fields:
        return self._fields

    def text(self, name: str, *, lines: bool = False) -> str:
        value = self._values.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            self._fields.add(name, "not a text")
            return ""
        at_most = MAX_TEXT if lines else 1024
        return printable(self._fields.text(name, value, at_most=at_most, lines=lines))

    def number(self, name: str, at_most: int) -> int:
        value = self._values.get(name)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self._fields.add(name, f"not a whole number; accepted is 0 to {at_most}")
            return 0
        self._fields.amount(name, value, at_most, "")
        return value if 0 <= value <= at_most else 0

    def switch(self, name: str) -> bool:
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            self._fields.add(name, "not true or false")
        return value is True

    def labels(self, name: str) -> dict[str, str]:
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            self._fields.add(name, "not an object of texts")
            return {}
        return labels_of(self._fields, name, value, value_length=MAX_TEXT)

    def inside(self, name: str) -> _Reader:
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            self._fields.add(name, "not an object")
            value = None
        return _Reader(self._fields.inside(name), value)

    def items(self, name: str) -> Iterator[_Reader]:
        value = self._values.get(name)
        if value is None:
            return
        if not isinstance(value, list):
            self._fields.add(name, "not a list")
            return
        for index, item in enumerate(value):
            place = self._fields.item(name, index)
            if isinstance(item, dict):
                yield _Reader(place, item)
            else:
                place.add("", "not an object")


def _disk(reader: _Reader) -> DiskSpec:
    kind = reader.fields.word("type", reader.text("type"), _DISK_TYPES, "disk")
    size = reader.number("size_gb", MAX_AMOUNT[DISK])
    return DiskSpec(
        size_gb=size or (DEFAULT_DISK_GB if kind == "disk" else 0),
        format=reader.text("format") or DEFAULT_DISK_FORMAT,
        type=kind,
        boot=reader.switch("boot"),
        **{name: reader.text(name) for name in _DISK},
    )


def _network(reader: _Reader) -> NetworkSpec:
    static_ip = reader.text("ip_address")
    names = {name: reader.text(name) for name in _NETWORK}
    return NetworkSpec(static_ip=static_ip, dhcp=not static_ip, **names)


def _cloud_init(reader: _Reader) -> CloudInit:
    return CloudInit(**{name: reader.text(name, lines=True) for name in _CLOUD_INIT})


def _volumes(fields: Fields, items: Iterator[_Reader]) -> tuple[ManagedVolume, ...]:
    """Through the message of the contract, so that one set of rules reads both shapes."""
    return managed_volumes(fields, [_volume_message(reader) for reader in items])


def _volume_message(reader: _Reader) -> pb.ManagedVolumeSpec:
    return pb.ManagedVolumeSpec(
        name=reader.text("name"),
        driver=reader.text("driver"),
        size_gb=reader.number("size_gb", MAX_AMOUNT[DISK]),
        access_mode=reader.text("access_mode"),
        fs_type=reader.text("fs_type"),
        mount_path=reader.text("mount_path"),
        read_only=reader.switch("read_only"),
        retain_policy=reader.text("retain_policy"),
    )
