"""The storage drivers' contract: local for real, nfs and ceph-rbd on scripted commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_agent.commands import HostCommands
from persys_agent.settings import NodeSettings, Places, load_settings
from persys_agent.storage.ceph_rbd import CephRbdDriver
from persys_agent.storage.local import LocalDriver
from persys_agent.storage.mounts import LinuxKernel
from persys_agent.storage.nfs import NfsDriver
from persys_agent.storage.port import StorageDriver
from persys_agent.testing.commands import ScriptedCommands
from persys_agent.testing.mounting import FakeCeph, FakeKernel
from persys_agent.testing.storage_suite import StorageDriverSuite


def settings(folder: Path) -> NodeSettings:
    places = Places.of(is_root=False, home=folder, working=folder, xdg_state=str(folder))
    environment = {
        "PERSYS_STORAGE_NFS_SERVER": "nas",
        "PERSYS_STORAGE_NFS_EXPORT": "/srv/persys",
        "PERSYS_STORAGE_CEPH_POOL": "rbd",
        "PERSYS_STORAGE_CEPH_USER": "persys",
    }
    return load_settings(environment, places=places)


class TestLocal(StorageDriverSuite):
    @pytest.fixture
    def driver(self, tmp_path: Path) -> StorageDriver:
        return LocalDriver(settings(tmp_path), HostCommands(), LinuxKernel())


class TestNfs(StorageDriverSuite):
    @pytest.fixture
    def driver(self, tmp_path: Path) -> StorageDriver:
        commands, kernel = ScriptedCommands(), FakeKernel(filesystems=["nfs"])
        kernel.script(commands)
        (tmp_path / "exported").mkdir()
        kernel.export("nas:/srv/persys", tmp_path / "exported")
        return NfsDriver(settings(tmp_path), commands, kernel)


class TestCephRbd(StorageDriverSuite):
    HOLDS_DATA = False

    @pytest.fixture
    def driver(self, tmp_path: Path) -> StorageDriver:
        commands, kernel = ScriptedCommands(), FakeKernel(buses=["rbd"])
        kernel.script(commands)
        FakeCeph().script(commands)
        commands.on("rbd", "--id", "persys", "ls")
        return CephRbdDriver(settings(tmp_path), commands, kernel)
