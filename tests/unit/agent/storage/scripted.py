"""Drivers on scripted commands, for tests."""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from persys_agent.settings import NodeSettings, Places, load_settings
from persys_agent.storage.ceph_rbd import CephRbdDriver
from persys_agent.storage.nfs import NfsDriver
from persys_agent.testing.commands import ScriptedCommands
from persys_agent.testing.mounting import FakeCeph, FakeKernel

__all__ = ["Ceph", "Nfs", "settings", "tree"]


def settings(folder: Path, **environment: str) -> NodeSettings:
    """Settings with everything in ``folder``, an NFS server and a Ceph pool."""
    places = Places.of(is_root=False, home=folder, working=folder, xdg_state=str(folder))
    defaults = {
        "PERSYS_STORAGE_NFS_SERVER": "nas",
        "PERSYS_STORAGE_NFS_EXPORT": "/srv/persys",
        "PERSYS_STORAGE_CEPH_POOL": "rbd",
        "PERSYS_STORAGE_CEPH_USER": "persys",
    }
    return load_settings({**defaults, **environment}, places=places)


@frozen
class Nfs:
    """The driver, and what stands behind it. ``exported`` is what the server has."""

    driver: NfsDriver
    commands: ScriptedCommands
    kernel: FakeKernel
    exported: Path
    stage: Path

    @classmethod
    def of(cls, folder: Path, **environment: str) -> Nfs:
        commands, kernel = ScriptedCommands(), FakeKernel(filesystems=["nfs"])
        kernel.script(commands)
        exported = folder / "exported"
        exported.mkdir()
        kernel.export("nas:/srv/persys", exported)
        given = settings(folder, **environment)
        driver = NfsDriver(given, commands, kernel)
        return cls(driver, commands, kernel, exported, Path(given.storage_nfs_stage_dir))


@frozen
class Ceph:
    """The driver, and what stands behind it."""

    driver: CephRbdDriver
    commands: ScriptedCommands
    kernel: FakeKernel
    ceph: FakeCeph
    stage: Path

    @classmethod
    def of(cls, folder: Path, **environment: str) -> Ceph:
        commands, kernel, ceph = ScriptedCommands(), FakeKernel(buses=["rbd"]), FakeCeph()
        kernel.script(commands)
        ceph.script(commands)
        given = settings(folder, **environment)
        driver = CephRbdDriver(given, commands, kernel)
        return cls(driver, commands, kernel, ceph, Path(given.storage_ceph_stage_dir))


def tree(folder: Path) -> list[str]:
    """Everything in the folder that is no record, by relative path."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if ".persys" not in path.relative_to(folder).parts
    )
