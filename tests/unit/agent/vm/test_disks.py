"""The disks that a spec becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_agent.runtimes.port import AttachedVolume, FailureCode, RuntimeFailedError
from persys_agent.runtimes.vm.disks import DiskPlaces, plan_disks
from persys_agent.runtimes.vm.plan import PlannedDisk, Source
from persys_core.model.spec import DiskSpec, ManagedVolume, VmSpec


@pytest.fixture
def places(tmp_path: Path) -> DiskPlaces:
    images, folder = tmp_path / "images", tmp_path / "w"
    images.mkdir()
    (images / "debian.qcow2").touch()
    return DiskPlaces(images, (images, folder, tmp_path / "disks"), folder)


def planned(places: DiskPlaces, *disks: DiskSpec, os_image: str = "") -> tuple[PlannedDisk, ...]:
    return plan_disks(VmSpec(1, 64, disks, os_image=os_image, disk_gb=5), (), None, places)


def test_an_image_becomes_the_root(places: DiskPlaces) -> None:
    """``os_image`` alone makes an overlay in the workload's folder that boots."""
    (root,) = planned(places, os_image="debian")
    assert root == PlannedDisk(
        "vda",
        Source.FILE,
        str(places.folder / "root.qcow2"),
        "qcow2",
        boot_order=1,
        makes_gb=5,
        backing=places.images_root / "debian.qcow2",
    )


def test_a_boot_disk_takes_the_image(places: DiskPlaces) -> None:
    """Where a disk says that it boots, the image backs that disk, and no other is made."""
    (disk,) = planned(places, DiskSpec(size_gb=7, boot=True), os_image="debian")
    assert (disk.makes_gb, disk.backing) == (7, places.images_root / "debian.qcow2")


def test_the_default_format_is_said(places: DiskPlaces) -> None:
    """A disk without a format is qcow2, a CD raw; never an empty type (defect 32)."""
    iso = places.images_root / "cd.iso"
    disk, cdrom = planned(places, DiskSpec(size_gb=1), DiskSpec(path=str(iso), type="cdrom"))
    assert (disk.form, disk.target, disk.is_read_only) == ("qcow2", "vda", False)
    assert (cdrom.form, cdrom.target, cdrom.is_read_only) == ("raw", "sda", True)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("rbd:pool/image", ("rbd", "pool/image", "", 6789)),
        ("rbd:pool/image@mon.example:3300", ("rbd", "pool/image", "mon.example", 3300)),
        ("nfs://10.0.0.1/exports/disk", ("nfs", "/exports/disk", "10.0.0.1", 2049)),
        ("nfs://10.0.0.1:2050/exports/disk", ("nfs", "/exports/disk", "10.0.0.1", 2050)),
        ("filer:/exports/disk", ("nfs", "/exports/disk", "filer", 2049)),
    ],
)
def test_network_disks_are_those_of_the_reference(
    places: DiskPlaces, path: str, expected: tuple[str, str, str, int]
) -> None:
    """Ceph and NFS by the paths that the reference agent reads."""
    (disk,) = planned(places, DiskSpec(path=path))
    assert (disk.source.value, disk.location, disk.host, disk.port) == expected
    assert disk.makes_gb == 0


def test_names_do_not_clash(places: DiskPlaces) -> None:
    """Given device names are kept, others are filled in around them."""
    disks = planned(
        places, DiskSpec(size_gb=1), DiskSpec(size_gb=1, device="/dev/vda"), DiskSpec(size_gb=1)
    )
    assert [disk.target for disk in disks] == ["vdb", "vda", "vdc"]


def test_boot_order_counts(places: DiskPlaces) -> None:
    """Disks that boot are numbered in the order of the spec."""
    disks = planned(
        places, DiskSpec(size_gb=1, boot=True), DiskSpec(size_gb=1), DiskSpec(size_gb=1, boot=True)
    )
    assert [disk.boot_order for disk in disks] == [1, 0, 2]


def test_a_volume_is_a_device_or_a_file(places: DiskPlaces) -> None:
    """A device is taken as it is; of a folder, a file in it is the disk (defect 36); the guest
    finds each by its name."""
    data = ManagedVolume("data", size_gb=3, read_only=True)
    volumes = [
        AttachedVolume(data, path="/mnt/data"),
        AttachedVolume(data, device="/dev/rbd0"),
        AttachedVolume(data, device="rbd:pool/data"),
    ]
    folder, block, rbd = plan_disks(VmSpec(1, 64), volumes, None, places)
    assert (folder.source, folder.location, folder.makes_gb) == (
        Source.FILE, "/mnt/data/disk.raw", 3,
    )  # fmt: skip
    assert (block.source, block.location) == (Source.BLOCK, "/dev/rbd0")
    assert (rbd.source, rbd.location) == (Source.RBD, "pool/data")
    assert all(disk.is_managed and disk.is_read_only for disk in (folder, block, rbd))
    assert folder.serial == "data"


def test_the_seed_is_a_disk_that_cloud_kernels_see(places: DiskPlaces) -> None:
    """It is on virtio, read-only, and comes last, so that no other disk changes its name."""
    root, seed = plan_disks(
        VmSpec(1, 64, os_image="debian"), (), places.folder / "seed.iso", places
    )  # fmt: skip
    assert (root.target, seed.target, seed.is_read_only) == ("vda", "vdb", True)


@pytest.mark.parametrize(
    "disk",
    [
        DiskSpec(path="/etc/shadow"),
        DiskSpec(path="/dev/sda"),
        DiskSpec(path="rbd:image"),
        DiskSpec(path="rbd:pool/image@host:x"),
        DiskSpec(size_gb=1, format="vmdk"),
        DiskSpec(size_gb=1, format="raw", backing_file="debian"),
    ],
)
def test_what_makes_no_sense_is_refused(places: DiskPlaces, disk: DiskSpec) -> None:
    """Files and devices of the host, unknown formats and broken names are errors of the spec."""
    with pytest.raises(RuntimeFailedError) as raised:
        planned(places, disk)
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_two_disks_of_one_name_are_refused(places: DiskPlaces) -> None:
    """libvirt would say so less clearly; too many disks likewise."""
    with pytest.raises(RuntimeFailedError, match="same device name"):
        planned(places, DiskSpec(size_gb=1, device="vda"), DiskSpec(size_gb=1, device="vda"))
    with pytest.raises(RuntimeFailedError, match="more than 26"):
        planned(places, *[DiskSpec(size_gb=1)] * 27)
