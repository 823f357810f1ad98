"""The storage contract with real mounts: file systems on devices, and what an operator mounts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import IO

import pytest
from attrs import evolve

from persys_agent.commands import HostCommands
from persys_agent.settings import NodeSettings, Places, load_settings
from persys_agent.storage.ceph_rbd import CephRbdDriver
from persys_agent.storage.mounts import LinuxKernel
from persys_agent.storage.nfs import NfsDriver
from persys_agent.storage.port import StorageDriver, StorageFailedError
from persys_agent.storage.stage import Stage
from persys_agent.testing.storage_suite import StorageDriverSuite
from persys_core.model.spec import ManagedVolume
from tests.servers.mounting import (
    LoopCeph,
    needs_loop_devices,
    needs_mounts,
    needs_resizing,
    unmount_below,
)

pytestmark = pytest.mark.slow


class RbdKernel(LinuxKernel):
    """This kernel, as if it had Ceph's block devices."""

    def has_bus(self, name: str) -> bool:
        return name == "rbd" or super().has_bus(name)


def settings(folder: Path) -> NodeSettings:
    places = Places.of(is_root=True, home=folder, working=folder)
    environment = {
        "PERSYS_AGENT_DATA_DIR": str(folder / "data"),
        "PERSYS_STORAGE_NFS_SERVER": "nas",
        "PERSYS_STORAGE_NFS_EXPORT": "/srv",
        "PERSYS_STORAGE_CEPH_POOL": "rbd",
        "PERSYS_STORAGE_CEPH_USER": "persys",
    }
    return load_settings(environment, places=places)


@pytest.fixture
def ceph(tmp_path: Path) -> Iterator[LoopCeph]:
    """Images that are files of this host."""
    needs_loop_devices()
    images = LoopCeph(tmp_path / "images")
    yield images
    unmount_below(tmp_path)
    images.close()


@pytest.fixture
def rbd(tmp_path: Path, ceph: LoopCeph) -> StorageDriver:
    return CephRbdDriver(settings(tmp_path), ceph, RbdKernel())


class TestCephRbdOnLoopDevices(StorageDriverSuite):
    @pytest.fixture
    def driver(self, rbd: StorageDriver) -> StorageDriver:
        return rbd


VOLUME = ManagedVolume("data", driver="ceph-rbd", size_gb=1)


@pytest.mark.asyncio
async def test_a_volume_grows_with_its_data(rbd: StorageDriver) -> None:
    """Image and file system become larger, and what was written is there."""
    needs_resizing()
    path = Path((await rbd.attach(VOLUME, "w1")).path)
    _write(path / "file")
    small = await rbd.use(VOLUME)
    await rbd.detach(VOLUME, "w1")
    larger = evolve(VOLUME, size_gb=2)
    await rbd.attach(larger, "w1")
    large = await rbd.use(larger)
    assert small is not None
    assert large is not None
    assert small.size_bytes < 1 << 30 < large.size_bytes
    assert _is_there(path / "file")
    await rbd.detach(larger, "w1")


@pytest.mark.asyncio
async def test_a_volume_to_be_read_cannot_be_written(rbd: StorageDriver) -> None:
    """The kernel refuses, not the runtime alone."""
    await rbd.attach(VOLUME, "w1")
    await rbd.detach(VOLUME, "w1")
    attached = await rbd.attach(evolve(VOLUME, read_only=True), "w1")
    with pytest.raises(OSError, match="Read-only file system"):
        _write(Path(attached.path) / "file")
    await rbd.detach(VOLUME, "w1")


def _write(path: Path) -> None:
    path.write_text("data")


def _is_there(path: Path) -> bool:
    return path.exists()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    needs_mounts(tmp_path)
    yield Stage(tmp_path / "stage", HostCommands(), LinuxKernel(), timeout=timedelta(seconds=20))
    unmount_below(tmp_path)


@pytest.mark.asyncio
async def test_the_stage_mounts_and_unmounts(stage: Stage) -> None:
    """Twice is once; afterwards neither mount nor folder is there, but the root is."""
    target = stage.target("w1", "two words\\and more")
    _make(stage.root)
    assert await stage.mount(target, "persys-test", ("tmpfs",), options=("size=1m",))
    assert not await stage.mount(target, "persys-test", ("tmpfs",))
    found = stage.mounted(target)
    assert found is not None
    assert (found.fs_type, found.source) == ("tmpfs", "persys-test")
    await stage.unmount(target, "persys-test", ("tmpfs",))
    await stage.unmount(target, "persys-test", ("tmpfs",))
    assert stage.mounted(target) is None
    assert not _is_there(target.parent)
    assert _is_there(stage.root)


@pytest.mark.asyncio
async def test_the_stage_mounts_anew_to_read_only(stage: Stage) -> None:
    """What is mounted already becomes read-only, and writable again."""
    target = stage.target("w1", "x")
    await stage.mount(target, "persys-test", ("tmpfs",))
    await stage.mount(target, "persys-test", ("tmpfs",), read_only=True)
    with pytest.raises(OSError, match="Read-only file system"):
        _write(target / "file")
    await stage.mount(target, "persys-test", ("tmpfs",))
    _write(target / "file")
    await stage.unmount(target, "persys-test", ("tmpfs",))


def _make(folder: Path) -> None:
    folder.mkdir(parents=True)


def operators_mount(point: Path) -> Path:
    """What an operator mounted by hand, with a file in it."""
    point.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "operators", str(point)], check=True)
    (point / "precious").write_text("data")
    return point / "precious"


@pytest.mark.asyncio
async def test_nothing_of_an_operators_mount_is_removed(tmp_path: Path, stage: Stage) -> None:
    """Mounted where a volume belongs, on top of one or inside of one: refused, and every file is
    there afterwards (defect 35)."""
    driver = NfsDriver(settings(tmp_path), HostCommands(), LinuxKernel())
    folder = Path(settings(tmp_path).storage_nfs_stage_dir) / "w1" / "nfs_data"
    precious = operators_mount(folder)
    volume = ManagedVolume("data", driver="nfs")
    with pytest.raises(StorageFailedError, match="operators"):
        await driver.detach(volume, "w1")
    assert _is_there(precious)

    target = stage.target("w1", "x")
    await stage.mount(target, "persys-test", ("tmpfs",))
    on_top = operators_mount(target)
    with pytest.raises(StorageFailedError, match="operators"):
        await stage.unmount(target, "persys-test", ("tmpfs",))
    assert _is_there(on_top)

    inside = operators_mount(stage.target("w2", "y", "inside"))
    with pytest.raises(StorageFailedError, match="operators"):
        await stage.unmount(stage.target("w2", "y"), "persys-test", ("tmpfs",))
    assert _is_there(inside)


@pytest.mark.asyncio
async def test_a_mount_in_use_stays(stage: Stage) -> None:
    """While somebody has a file open there, it is not unmounted, and not by force."""
    target = stage.target("w1", "x")
    await stage.mount(target, "persys-test", ("tmpfs",))
    with _held_open(target / "file"):
        with pytest.raises(StorageFailedError, match="is in use"):
            await stage.unmount(target, "persys-test", ("tmpfs",))
        assert stage.mounted(target) is not None
    await stage.unmount(target, "persys-test", ("tmpfs",))


def _held_open(path: Path) -> IO[str]:
    return path.open("w")


@pytest.mark.asyncio
async def test_a_mount_that_the_kernel_refuses(stage: Stage) -> None:
    """The reason is the program's, and no folder is left."""
    target = stage.target("w1", "x")
    with pytest.raises(StorageFailedError, match="cannot be mounted"):
        await stage.mount(target, "/dev/null", ("ext4",))
    assert not _is_there(target.parent)
