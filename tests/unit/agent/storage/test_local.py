"""Driver local: sizes count against one pool, and nothing else's data is ever removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.commands import HostCommands
from persys_agent.storage.drivers import storage_drivers
from persys_agent.storage.local import LocalDriver
from persys_agent.storage.mounts import LinuxKernel, Mount
from persys_agent.storage.port import StorageFailedError
from persys_agent.testing.mounting import FakeKernel
from persys_core.model.spec import ManagedVolume
from tests.unit.agent.storage.scripted import settings

VOLUME = ManagedVolume("data", size_gb=1, mount_path="/data")


def driver(folder: Path, kernel: FakeKernel | None = None, **environment: str) -> LocalDriver:
    return LocalDriver(settings(folder, **environment), HostCommands(), kernel or LinuxKernel())


@pytest.mark.asyncio
async def test_sizes_count_against_the_pool(tmp_path: Path) -> None:
    """What is promised already leaves less; what goes leaves more."""
    local = driver(tmp_path, PERSYS_STORAGE_LOCAL_SIZE_GB="3")
    assert [pool.total_gb for pool in await local.pools()] == [3]
    first, second = (evolve(VOLUME, name=name, size_gb=2) for name in ("a", "b"))
    await local.attach(first, "w1")
    with pytest.raises(StorageFailedError, match=r"4 GiB of volumes, and .* has 3 GiB"):
        await local.attach(second, "w2")
    await local.detach(first, "w1")
    with pytest.raises(StorageFailedError, match="4 GiB of volumes"):
        await local.attach(second, "w2")
    await local.delete_data(first)
    await local.attach(second, "w2")


@pytest.mark.asyncio
async def test_a_refused_volume_leaves_nothing(tmp_path: Path) -> None:
    """Neither a folder nor a promise."""
    local = driver(tmp_path, PERSYS_STORAGE_LOCAL_SIZE_GB="1")
    with pytest.raises(StorageFailedError):
        await local.attach(evolve(VOLUME, size_gb=2), "w1")
    root = Path(settings(tmp_path).storage_local_root)
    assert _names(root) == [".persys"]
    await local.attach(VOLUME, "w1")


@pytest.mark.asyncio
async def test_space_that_is_not_there_is_not_promised(tmp_path: Path) -> None:
    """The file system has to have what a new volume asks for."""
    with pytest.raises(StorageFailedError, match="GiB"):
        await driver(tmp_path).attach(evolve(VOLUME, size_gb=900_000), "w1")


@pytest.mark.asyncio
async def test_growth_is_asked_for_and_kept(tmp_path: Path) -> None:
    """Only the difference is asked for; a smaller size later is no shrinking."""
    local = driver(tmp_path, PERSYS_STORAGE_LOCAL_SIZE_GB="3")
    await local.attach(VOLUME, "w1")
    await local.attach(evolve(VOLUME, size_gb=3), "w1")
    with pytest.raises(StorageFailedError, match="1 GiB more make 4 GiB"):
        await local.attach(evolve(VOLUME, size_gb=4), "w1")
    await local.attach(VOLUME, "w1")
    found = await local.use(VOLUME)
    assert found is not None
    assert found.size_bytes == 3 << 30


@pytest.mark.asyncio
async def test_a_machines_disk_is_a_sparse_file_that_grows(tmp_path: Path) -> None:
    """A file and no folder (defect 36); its data survives growing; it never shrinks."""
    local = driver(tmp_path)
    attached = await local.attach(VOLUME, "vm1", as_device=True)
    disk = Path(attached.device)
    _write_at(disk, b"data")
    made = os.stat(disk)
    assert (made.st_size, made.st_mode & 0o777) == (1 << 30, 0o600)
    assert made.st_blocks * 512 < 1 << 20
    await local.attach(evolve(VOLUME, size_gb=2), "vm1", as_device=True)
    assert os.stat(disk).st_size == 2 << 30
    await local.attach(VOLUME, "vm1", as_device=True)
    assert os.stat(disk).st_size == 2 << 30
    assert _read_at(disk) == b"data"
    with pytest.raises(StorageFailedError, match="needs size_gb"):
        await local.attach(evolve(VOLUME, name="none", size_gb=0), "vm1", as_device=True)


def _write_at(disk: Path, data: bytes) -> None:
    with disk.open("r+b") as file:
        file.write(data)


def _read_at(disk: Path) -> bytes:
    with disk.open("rb") as file:
        return file.read(4)


@pytest.mark.asyncio
async def test_what_is_used_is_measured(tmp_path: Path) -> None:
    """What the folder takes up; unknown where there is no such volume."""
    local = driver(tmp_path)
    assert await local.use(VOLUME) is None
    attached = await local.attach(VOLUME, "w1")
    before = await local.use(VOLUME)
    _fill(Path(attached.path) / "file")
    after = await local.use(VOLUME)
    assert before is not None
    assert after is not None
    assert after.used_bytes - before.used_bytes >= 1 << 20


def _fill(path: Path) -> None:
    path.write_bytes(b"x" * (1 << 20))


@pytest.mark.asyncio
async def test_a_volume_with_something_mounted_inside_is_not_removed(tmp_path: Path) -> None:
    """What an operator mounted in a volume's folder is not the volume's data."""
    kernel = FakeKernel()
    local = driver(tmp_path, kernel)
    attached = await local.attach(VOLUME, "w1")
    await local.detach(VOLUME, "w1")
    kernel.table.append(Mount(f"{attached.path}/mnt", "ext4", "/dev/sdz1"))
    with pytest.raises(StorageFailedError, match="nothing is removed"):
        await local.delete_data(VOLUME)
    assert _exists(attached.path)


@pytest.mark.asyncio
async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link where the folder belongs leads elsewhere: neither used nor followed to remove."""
    local = driver(tmp_path)
    root = Path(settings(tmp_path).storage_local_root)
    _link(root / "data", tmp_path / "precious")
    with pytest.raises(StorageFailedError, match="is a link"):
        await local.attach(VOLUME, "w1")
    with pytest.raises(StorageFailedError, match="is a link"):
        await local.delete_data(VOLUME)
    assert _exists(str(tmp_path / "precious" / "file"))


def _link(link: Path, target: Path) -> None:
    target.mkdir()
    (target / "file").write_text("data")
    link.parent.mkdir(parents=True)
    link.symlink_to(target)


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


def _exists(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.asyncio
async def test_a_record_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """A volume of which nothing is known is not given to a second workload."""
    local = driver(tmp_path)
    await local.attach(VOLUME, "w1")
    record = Path(settings(tmp_path).storage_local_root) / ".persys" / "data.json"
    record.write_text("{")
    with pytest.raises(StorageFailedError, match=r"data\.json cannot be read"):
        await local.attach(VOLUME, "w2")


@pytest.mark.asyncio
async def test_a_root_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    """The driver is not advertised then, and the setting is named."""
    (tmp_path / "file").write_text("")
    local = driver(tmp_path, PERSYS_STORAGE_LOCAL_ROOT=str(tmp_path / "file" / "below"))
    found = await local.probe()
    assert not found.is_available
    assert "storage_local_root" in found.detail


def test_every_driver_is_there_by_its_name(tmp_path: Path) -> None:
    """The names that specs use."""
    drivers = storage_drivers(settings(tmp_path), HostCommands())
    assert {name: driver.name for name, driver in drivers.items()} == {
        name: name for name in ("local", "nfs", "ceph-rbd")
    }
