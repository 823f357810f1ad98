"""The disks of a virtual machine: what the spec says, as planned disks.

Decided here: what boots (a disk that says so, else ``os_image``), where a disk without a path
lies, which network disks there are (``rbd:pool/image``, ``nfs://host/path``, ``host:/path``, as the
reference agent has them), and how disks are called in the guest. Nothing is written here.

The cloud-init seed is a read-only virtio disk: the reference's SATA CD-ROM is invisible to the
kernels of Debian's cloud images, which have no driver for it; cloud-init asks for the label alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import evolve, frozen

from persys_agent.runtimes.machine.images import allowed_path, find_image
from persys_agent.runtimes.port import AttachedVolume, FailureCode, RuntimeFailedError
from persys_agent.runtimes.vm.plan import PlannedDisk, Source
from persys_core.model.spec import DiskSpec, VmSpec

__all__ = ["DiskPlaces", "plan_disks"]

_DEFAULT_GB = 10
_CEPH_PORT, _NFS_PORT = 6789, 2049
_TARGET = re.compile(r"(vd|sd|hd)[a-z]\Z")
_HOST_PATH = re.compile(r"(?P<host>[A-Za-z0-9.-]+):(?P<path>/.+)\Z")
_NFS_URL = re.compile(r"nfs://(?P<host>[^/:]+)(:(?P<port>\d+))?(?P<path>/.+)\Z")
_FORMATS = frozenset({"raw", "qcow2"})
_SERIAL_LENGTH = 20
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@frozen
class DiskPlaces:
    """``images_root``: images that specs name; ``roots``: where disks of specs may lie; ``folder``:
    the workload's own."""

    images_root: Path
    roots: tuple[Path, ...]
    folder: Path


def plan_disks(
    vm: VmSpec, volumes: Sequence[AttachedVolume], seed: Path | None, places: DiskPlaces
) -> tuple[PlannedDisk, ...]:
    """Every disk, named. Raises ``RuntimeFailedError``: ``INVALID_SPEC``, ``IMAGE_NOT_FOUND``."""
    disks = [*_with_root(vm, places), *(_volume(each) for each in volumes)]
    if seed is not None:
        disks.append(
            PlannedDisk("", Source.FILE, str(seed), is_read_only=True, serial="cidata")
        )  # fmt: skip
    return tuple(_in_boot_order(_named(disks)))


def _with_root(vm: VmSpec, places: DiskPlaces) -> Iterator[PlannedDisk]:
    image = find_image(vm.os_image, places.images_root) if vm.os_image else None
    boots = any(disk.boot and disk.type != "cdrom" for disk in vm.disks)
    if image is not None and not boots:
        path = places.folder / "root.qcow2"
        yield PlannedDisk(
            "", Source.FILE, str(path), "qcow2", boot_order=1, makes_gb=vm.disk_gb, backing=image
        )
    for index, disk in enumerate(vm.disks):
        planned = _spec_disk(index, disk, places)
        takes_image = disk.boot and not planned.is_cdrom and planned.source is Source.FILE
        if image is not None and takes_image and planned.backing is None:
            planned = evolve(planned, backing=image, form="qcow2", makes_gb=disk.size_gb)
        yield planned


def _spec_disk(index: int, disk: DiskSpec, places: DiskPlaces) -> PlannedDisk:
    is_cdrom = disk.type == "cdrom"
    default = "raw" if is_cdrom or disk.path.startswith("/dev/") else "qcow2"
    form = disk.format or default
    if form not in _FORMATS:
        raise _invalid(f"disk format {form!r} is not one of {', '.join(sorted(_FORMATS))}")
    planned = _located(index, disk, form, places)
    target = disk.device.removeprefix("/dev/")
    return evolve(
        planned,
        target=target if _TARGET.match(target) else "",
        is_cdrom=is_cdrom,
        is_read_only=is_cdrom,
        boot_order=1 if disk.boot else 0,
    )


def _located(index: int, disk: DiskSpec, form: str, places: DiskPlaces) -> PlannedDisk:
    text = disk.path
    if text.startswith("rbd:"):
        return _rbd(text)
    if match := _NFS_URL.match(text) or _HOST_PATH.match(text):
        port = int(match.groupdict().get("port") or _NFS_PORT)
        return PlannedDisk("", Source.NFS, match["path"], form, match["host"], port)
    backing = find_image(disk.backing_file, places.images_root) if disk.backing_file else None
    if backing is not None and form != "qcow2":
        raise _invalid("a disk with a backing file has to be qcow2")
    if not text:
        path = places.folder / f"disk{index}.{form}"
        size = disk.size_gb or (0 if backing else _DEFAULT_GB)
        return PlannedDisk("", Source.FILE, str(path), form, makes_gb=size, backing=backing)
    path = allowed_path(text, places.roots)
    source = Source.BLOCK if path.is_block_device() else Source.FILE
    return PlannedDisk("", source, str(path), form, makes_gb=disk.size_gb, backing=backing)


def _rbd(text: str) -> PlannedDisk:
    """``rbd:pool/image[@host[:port]]``; without a host, Ceph's own configuration names it."""
    image, _, server = text.removeprefix("rbd:").partition("@")
    host, _, port = server.partition(":")
    if "/" not in image or (port and not port.isdigit()):
        raise _invalid("a path that begins with rbd: has to be rbd:pool/image[@host[:port]]")
    return PlannedDisk("", Source.RBD, image, host=host, port=int(port or _CEPH_PORT))


def _volume(volume: AttachedVolume) -> PlannedDisk:
    """A managed volume: its device; or, where it is a folder, one file in it (defect 36)."""
    named = volume.volume
    if volume.device.startswith("rbd:"):
        planned = _rbd(volume.device)
    elif volume.device:
        planned = PlannedDisk("", Source.BLOCK, volume.device)
    else:
        path = Path(volume.path) / "disk.raw"
        size = named.size_gb or _DEFAULT_GB
        planned = PlannedDisk("", Source.FILE, str(path), makes_gb=size)
    serial = named.name[:_SERIAL_LENGTH]
    return evolve(planned, is_managed=True, serial=serial, is_read_only=named.read_only)


def _named(disks: Sequence[PlannedDisk]) -> Iterator[PlannedDisk]:
    taken = {disk.target for disk in disks if disk.target}
    if len(taken) < sum(1 for disk in disks if disk.target):
        raise _invalid("two disks have the same device name")
    for disk in disks:
        target = disk.target or _free("sd" if disk.is_cdrom else "vd", taken)
        taken.add(target)
        yield evolve(disk, target=target)


def _free(prefix: str, taken: set[str]) -> str:
    for letter in _LETTERS:
        if prefix + letter not in taken:
            return prefix + letter
    raise _invalid(f"more than {len(_LETTERS)} disks")


def _in_boot_order(disks: Iterator[PlannedDisk]) -> Iterator[PlannedDisk]:
    number = 0
    for disk in disks:
        number += 1 if disk.boot_order else 0
        yield evolve(disk, boot_order=number if disk.boot_order else 0)


def _invalid(text: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.INVALID_SPEC, text)
