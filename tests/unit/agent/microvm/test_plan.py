"""The calls that an order becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.runtimes.microvm.plan import MachinePlan, plan_machine
from persys_agent.runtimes.microvm.records import MachineFolder
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import AttachedVolume, FailureCode, Order, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import CloudInit, DiskSpec, ManagedVolume, NetworkSpec, VmSpec
from persys_core.model.spec import WorkloadSpec as Spec
from persys_core.model.states import WorkloadType

BODY = VmSpec(1, 128, os_image="root")


@pytest.fixture
def settings(tmp_path: Path) -> MicroVmSettings:
    for name in ("root.img", "vmlinux", "initrd"):
        (tmp_path / name).touch()
    return MicroVmSettings(images_root=tmp_path, disk_roots=(tmp_path,))


def planned(settings: MicroVmSettings, body: VmSpec, *volumes: AttachedVolume) -> MachinePlan:
    spec = Spec(WorkloadType.MICROVM, Resources(), body)
    folder = MachineFolder(settings.images_root / "w")
    return plan_machine(Order("w", "r", "h", spec, volumes), folder, settings)


def test_the_calls_have_an_order(settings: MicroVmSettings) -> None:
    """Size, boot source, disks, NICs; the start is no part of them."""
    body = evolve(
        BODY, cloud_init=CloudInit(user_data="x"), networks=(NetworkSpec(host_dev_name="tap0"),)
    )
    assert [path for path, _ in planned(settings, body).requests] == [
        "/machine-config",
        "/boot-source",
        "/drives/rootfs",
        "/drives/cidata",
        "/network-interfaces/eth0",
    ]


def test_the_boot_source_is_the_settings_or_the_specs(settings: MicroVmSettings) -> None:
    """Kernel and command line of the settings, unless the spec names its own; an initrd too."""
    usual = dict(planned(settings, BODY).requests)["/boot-source"]
    assert usual == {
        "kernel_image_path": str(settings.images_root / "vmlinux"),
        "boot_args": settings.command_line,
    }
    metadata = {"persys.agent.initrd": "initrd", "persys.agent.cmdline": "quiet"}
    own = dict(planned(settings, VmSpec(1, 128, metadata=metadata)).requests)["/boot-source"]
    assert own["initrd_path"] == str(settings.images_root / "initrd")
    assert own["boot_args"] == "quiet"


def test_a_volume_is_a_drive(settings: MicroVmSettings) -> None:
    """A device as it is, a folder by a file in it (defect 36)."""
    data = ManagedVolume("data", size_gb=2, read_only=True)
    plan = planned(
        settings, BODY, AttachedVolume(data, device="/dev/rbd0"), AttachedVolume(data, path="/v")
    )
    drives = dict(plan.requests)
    assert drives["/drives/volume0"]["path_on_host"] == "/dev/rbd0"
    assert drives["/drives/volume1"]["path_on_host"] == "/v/disk.raw"
    assert drives["/drives/volume1"]["is_read_only"] is True


@pytest.mark.parametrize(
    "body",
    [
        evolve(BODY, vcpus=33),
        evolve(BODY, memory_mb=0),
        VmSpec(1, 128),
        evolve(BODY, networks=(NetworkSpec(network="default"),)),
        evolve(BODY, disks=(DiskSpec(size_gb=1, format="qcow2"),)),
        evolve(BODY, disks=(DiskSpec(path="/etc/shadow"),)),
    ],
)
def test_what_firecracker_cannot_is_refused(settings: MicroVmSettings, body: VmSpec) -> None:
    """Before anything is made, with the code of a wrong spec."""
    with pytest.raises(RuntimeFailedError) as raised:
        planned(settings, body)
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_what_is_not_there_is_missing(settings: MicroVmSettings) -> None:
    """A disk, a kernel or an image that does not exist has the code of a missing image."""
    for body in (
        evolve(BODY, os_image="nowhere"),
        evolve(BODY, metadata={"persys.agent.kernel": "nowhere"}),
        evolve(BODY, disks=(DiskSpec(path=str(settings.images_root / "none.raw")),)),
    ):
        with pytest.raises(RuntimeFailedError) as raised:
            planned(settings, body)
        assert raised.value.code is FailureCode.IMAGE_NOT_FOUND


def test_a_network_volume_needs_a_device(settings: MicroVmSettings) -> None:
    """Firecracker speaks no protocol of Ceph's."""
    volume = AttachedVolume(ManagedVolume("data"), device="rbd:pool/data")
    with pytest.raises(RuntimeFailedError, match="no device of this host"):
        planned(settings, BODY, volume)
