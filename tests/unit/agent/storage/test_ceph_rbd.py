"""Driver ceph-rbd on scripted commands: what is run in which order, and what is undone."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.storage.ceph_rbd import CephRbdDriver
from persys_agent.storage.port import StorageFailedError
from persys_agent.testing.commands import ScriptedCommands
from persys_agent.testing.mounting import FakeKernel
from persys_core.model.spec import ManagedVolume
from tests.unit.agent.storage.scripted import Ceph, settings, tree

VOLUME = ManagedVolume("Data", driver="ceph-rbd", size_gb=3, mount_path="/data")
RBD = ("rbd", "--id", "persys")


@pytest.mark.asyncio
async def test_a_new_image_is_made_mapped_formatted_and_mounted(tmp_path: Path) -> None:
    """In this order, each once; the mapping holds the image's lock."""
    ceph = Ceph.of(tmp_path)
    attached = await ceph.driver.attach(VOLUME, "w1")
    target = f"{ceph.stage}/w1/ceph-rbd_data"
    assert attached.path == target
    assert ceph.commands.ran == [
        "rbd --id persys info --format json rbd/data",
        "rbd --id persys create --size 3G --image-feature layering --image-feature exclusive-lock"
        " rbd/data",
        "rbd --id persys device list --format json",
        "rbd --id persys device map --exclusive rbd/data",
        "blkid --probe --output export /dev/rbd0",
        "mkfs.ext4 -q -m 0 /dev/rbd0",
        f"mount -t ext4 -o rw -- /dev/rbd0 {target}",
    ]


@pytest.mark.asyncio
async def test_an_image_with_data_is_never_formatted(tmp_path: Path) -> None:
    """blkid found a file system, so it is mounted as it is."""
    ceph = Ceph.of(tmp_path)
    ceph.ceph.images["rbd/data"] = 3 << 30
    ceph.ceph.filesystems["rbd/data"] = "TYPE=ext4"
    await ceph.driver.attach(VOLUME, "w1")
    assert not [each for each in ceph.commands.ran if "mkfs" in each or " create " in each]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("TYPE=xfs", "holds xfs and not ext4"),
        ("PTTYPE=gpt", "something that is no file system"),
        ("TYPE=crypto_LUKS", "holds crypto_LUKS"),
    ],
)
@pytest.mark.asyncio
async def test_what_is_not_understood_is_left_as_it_is(
    tmp_path: Path, found: str, told: str
) -> None:
    """Another file system, partitions or encryption are data: refused and unmapped."""
    ceph = Ceph.of(tmp_path)
    ceph.ceph.images["rbd/data"] = 3 << 30
    ceph.ceph.filesystems["rbd/data"] = found
    with pytest.raises(StorageFailedError, match=told):
        await ceph.driver.attach(VOLUME, "w1")
    assert not [each for each in ceph.commands.ran if "mkfs" in each]
    assert ceph.ceph.devices == {}
    assert ceph.ceph.images == {"rbd/data": 3 << 30}


@pytest.mark.asyncio
async def test_where_blkid_cannot_tell_nothing_is_formatted(tmp_path: Path) -> None:
    """Only its word for nothing at all makes a file system; several signatures (8) do not."""
    ceph = Ceph.of(tmp_path)
    ceph.commands.on("blkid", code=8, stderr="ambivalent result")
    with pytest.raises(StorageFailedError, match="ambivalent result"):
        await ceph.driver.attach(VOLUME, "w1")
    assert not [each for each in ceph.commands.ran if "mkfs" in each]


STEPS = (
    (*RBD, "info"),
    (*RBD, "device", "list"),
    (*RBD, "device", "map"),
    ("blkid",),
    ("mkfs.ext4",),
    ("mount", "-t"),
)


@pytest.mark.parametrize(
    ("step", "existed"),
    [*((step, existed) for step in STEPS for existed in (False, True)), ((*RBD, "create"), False)],
)
@pytest.mark.asyncio
async def test_each_step_that_fails_is_undone(
    tmp_path: Path, step: tuple[str, ...], existed: bool
) -> None:
    """No mapping, no mount, no folder is left; an image goes only if it was made just now."""
    ceph = Ceph.of(tmp_path)
    if existed:
        ceph.ceph.images["rbd/data"] = 3 << 30
    before = dict(ceph.ceph.images)
    ceph.commands.on(*step, code=1, stderr="broken")
    with pytest.raises(StorageFailedError, match="broken"):
        await ceph.driver.attach(VOLUME, "w1")
    assert ceph.ceph.devices == {}
    assert ceph.kernel.mounts() == ()
    assert tree(ceph.stage) == []
    assert ceph.ceph.images == before


@pytest.mark.asyncio
async def test_detach_unmounts_then_unmaps(tmp_path: Path) -> None:
    """The image with its data stays."""
    ceph = Ceph.of(tmp_path)
    attached = await ceph.driver.attach(VOLUME, "w1")
    ceph.commands.calls.clear()
    await ceph.driver.detach(VOLUME, "w1")
    assert ceph.commands.ran == [
        "rbd --id persys device list --format json",
        f"umount -- {attached.path}",
        "rbd --id persys device unmap /dev/rbd0",
    ]
    assert "rbd/data" in ceph.ceph.images
    assert tree(ceph.stage) == []


@pytest.mark.asyncio
async def test_the_device_stays_for_the_other_workload(tmp_path: Path) -> None:
    """Two workloads of one host share a mapping; the last one's detach lets go of it."""
    ceph = Ceph.of(tmp_path)
    shared = evolve(VOLUME, access_mode="ReadWriteMany")
    await ceph.driver.attach(shared, "w1")
    await ceph.driver.attach(shared, "w2")
    assert ceph.ceph.devices == {"/dev/rbd0": "rbd/data"}
    await ceph.driver.detach(shared, "w1")
    assert ceph.ceph.devices == {"/dev/rbd0": "rbd/data"}
    await ceph.driver.detach(shared, "w2")
    assert ceph.ceph.devices == {}


@pytest.mark.asyncio
async def test_a_busy_volume_stays_mapped(tmp_path: Path) -> None:
    """A device whose file system is mounted is not let go of."""
    ceph = Ceph.of(tmp_path)
    attached = await ceph.driver.attach(VOLUME, "w1")
    ceph.kernel.busy.add(attached.path)
    with pytest.raises(StorageFailedError, match="is in use"):
        await ceph.driver.detach(VOLUME, "w1")
    assert ceph.ceph.devices == {"/dev/rbd0": "rbd/data"}


@pytest.mark.asyncio
async def test_machines_get_the_mapped_device(tmp_path: Path) -> None:
    """As it is: no file system is made on it, and nothing is mounted."""
    ceph = Ceph.of(tmp_path)
    attached = await ceph.driver.attach(VOLUME, "vm1", as_device=True)
    assert (attached.device, attached.path) == ("/dev/rbd0", "")
    assert not [each for each in ceph.commands.ran if each.startswith(("blkid", "mkfs", "mount"))]


@pytest.mark.asyncio
async def test_an_image_grows_and_never_shrinks(tmp_path: Path) -> None:
    """A larger size_gb resizes the image; a smaller one does nothing."""
    ceph = Ceph.of(tmp_path)
    await ceph.driver.attach(VOLUME, "w1")
    await ceph.driver.detach(VOLUME, "w1")
    await ceph.driver.attach(evolve(VOLUME, size_gb=5), "w1")
    assert ceph.ceph.images == {"rbd/data": 5 << 30}
    await ceph.driver.detach(VOLUME, "w1")
    await ceph.driver.attach(evolve(VOLUME, size_gb=1), "w1")
    assert ceph.ceph.images == {"rbd/data": 5 << 30}


@pytest.mark.asyncio
async def test_a_file_system_smaller_than_its_image_is_grown(tmp_path: Path) -> None:
    """Also where an earlier attempt came no further than the image; failing is undone."""
    ceph = Ceph.of(tmp_path)
    huge = evolve(VOLUME, size_gb=1_000_000)  # the folder's own file system is smaller
    await ceph.driver.attach(huge, "w1")
    assert ceph.commands.ran[-1] == "resize2fs /dev/rbd0"
    await ceph.driver.detach(huge, "w1")
    ceph.commands.on("resize2fs", code=1, stderr="broken")
    with pytest.raises(StorageFailedError, match="cannot grow: broken"):
        await ceph.driver.attach(huge, "w1")
    assert ceph.ceph.devices == {}
    assert ceph.kernel.mounts() == ()


@pytest.mark.asyncio
async def test_a_volume_to_be_read(tmp_path: Path) -> None:
    """It is mapped and mounted read-only, and neither made nor formatted."""
    ceph = Ceph.of(tmp_path)
    reader = evolve(VOLUME, read_only=True)
    with pytest.raises(StorageFailedError, match="does not exist"):
        await ceph.driver.attach(reader, "w1")
    ceph.ceph.images["rbd/data"] = 3 << 30
    with pytest.raises(StorageFailedError, match="is to be read only"):
        await ceph.driver.attach(reader, "w1")
    ceph.ceph.filesystems["rbd/data"] = "TYPE=ext4"
    await ceph.driver.attach(reader, "w1")
    assert "rbd --id persys device map --read-only rbd/data" in ceph.commands.ran
    assert ceph.kernel.mounts()[-1].is_read_only


@pytest.mark.asyncio
async def test_what_cannot_be_made_is_refused_first(tmp_path: Path) -> None:
    """A size is needed for a new image, and a file system that is known; nothing is run then."""
    ceph = Ceph.of(tmp_path)
    with pytest.raises(StorageFailedError, match="needs size_gb"):
        await ceph.driver.attach(evolve(VOLUME, size_gb=0), "w1")
    ceph.commands.calls.clear()
    with pytest.raises(StorageFailedError, match="use one of ext4, xfs"):
        await ceph.driver.attach(evolve(VOLUME, fs_type="ntfs; rm"), "w1")
    assert ceph.commands.calls == []


@pytest.mark.asyncio
async def test_an_image_that_another_host_has_is_not_removed(tmp_path: Path) -> None:
    """The cluster's word for in use is told as such."""
    ceph = Ceph.of(tmp_path)
    ceph.ceph.images["rbd/data"] = 1
    ceph.ceph.devices["/dev/elsewhere"] = "rbd/data"
    with pytest.raises(StorageFailedError, match="is in use: image has watchers"):
        await ceph.driver.delete_data(VOLUME)


@pytest.mark.asyncio
async def test_old_and_odd_answers(tmp_path: Path) -> None:
    """The mapping by id of older releases is read; what is no JSON is a failure, not a guess."""
    ceph = Ceph.of(tmp_path)
    ceph.ceph.images["rbd/data"] = 3 << 30
    ceph.ceph.filesystems["rbd/data"] = "TYPE=ext4"
    ceph.ceph.devices["/dev/rbd7"] = "rbd/data"
    listed = '{"0": {"pool": "rbd", "name": "data", "device": "/dev/rbd7"}}'
    ceph.commands.on(*RBD, "device", "list", stdout=listed)
    await ceph.driver.attach(VOLUME, "w1")
    assert ceph.kernel.mounts()[-1].source == "/dev/rbd7"
    ceph.commands.on(*RBD, "info", stdout="health HEALTH_WARN")
    with pytest.raises(StorageFailedError, match="something else than its JSON"):
        await ceph.driver.attach(VOLUME, "w1")


@pytest.mark.parametrize(
    ("pool", "kernel", "programs", "listed", "told"),
    [
        ("", FakeKernel(), None, 0, "storage_ceph_pool is not set"),
        ("rbd", FakeKernel(root=False), None, 0, "needs root"),
        ("rbd", FakeKernel(), ["mount"], 0, "install ceph-common"),
        ("rbd", FakeKernel(), None, 0, "this kernel has no rbd"),
        ("rbd", FakeKernel(buses=["rbd"]), None, 13, "cannot be listed: permission denied"),
        ("rbd", FakeKernel(buses=["rbd"]), None, 0, ""),
    ],
    ids=["settings", "root", "tools", "kernel", "cluster", "all there"],
)
@pytest.mark.asyncio
async def test_what_is_missing_is_told(
    tmp_path: Path,
    pool: str,
    kernel: FakeKernel,
    programs: list[str] | None,
    listed: int,
    told: str,
) -> None:
    """The driver is advertised only where everything is there and the cluster lists the pool."""
    commands = ScriptedCommands(programs=programs).on("modprobe", code=1)
    commands.on(*RBD, "ls", "rbd", code=listed, stderr="permission denied" if listed else "")
    given = settings(tmp_path, PERSYS_STORAGE_CEPH_POOL=pool)
    found = await CephRbdDriver(given, commands, kernel).probe()
    assert found.is_available is (not told)
    assert told in found.detail


@pytest.mark.asyncio
async def test_how_the_cluster_is_named(tmp_path: Path) -> None:
    """Cluster, user and keyring are those of the settings; the user may be written either way."""
    commands = ScriptedCommands().on("rbd")
    given = settings(
        tmp_path,
        PERSYS_STORAGE_CEPH_CLUSTER="west",
        PERSYS_STORAGE_CEPH_USER="client.persys",
        PERSYS_STORAGE_CEPH_KEYRING="/etc/ceph/k",
    )
    await CephRbdDriver(given, commands, FakeKernel(buses=["rbd"])).probe()
    assert commands.ran == ["rbd --cluster west --id persys --keyring /etc/ceph/k ls rbd"]
