"""Driver nfs on scripted commands: what is run in which order, and what is undone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.commands import CommandResult, CommandTimeoutError
from persys_agent.storage.mounts import Mount
from persys_agent.storage.nfs import NfsDriver
from persys_agent.storage.port import StorageFailedError
from persys_agent.testing.commands import ScriptedCommands
from persys_agent.testing.mounting import FakeKernel
from persys_core.model.spec import ManagedVolume
from tests.unit.agent.storage.scripted import Nfs, settings, tree

VOLUME = ManagedVolume("Team A", driver="nfs", mount_path="/data")


@pytest.mark.asyncio
async def test_the_sub_folder_is_made_and_mounted(tmp_path: Path) -> None:
    """The export is mounted only to make the sub-folder; that is mounted where the workload's
    volumes are, with the options of the settings."""
    nfs = Nfs.of(tmp_path, PERSYS_STORAGE_NFS_OPTIONS="vers=4.2,hard")
    attached = await nfs.driver.attach(VOLUME, "w1")
    target, export = f"{nfs.stage}/w1/nfs_team-a", f"{nfs.stage}/.persys/export-team-a"
    assert attached.path == target
    assert nfs.commands.ran == [
        f"mount -t nfs -o vers=4.2,hard,rw -- nas:/srv/persys {export}",
        f"mount -t nfs -o vers=4.2,hard,rw -- nas:/srv/persys/team-a {target}",
        f"umount -- {export}",
    ]
    assert [each.point for each in nfs.kernel.mounts()] == [target]
    assert (nfs.exported / "team-a").is_dir()


@pytest.mark.asyncio
async def test_detach_unmounts_and_keeps_the_data(tmp_path: Path) -> None:
    """Afterwards neither mount nor folder is left, and the server's data is as it was."""
    nfs = Nfs.of(tmp_path)
    attached = await nfs.driver.attach(VOLUME, "w1")
    (Path(attached.path) / "file").write_text("data")
    await nfs.driver.detach(VOLUME, "w1")
    assert nfs.kernel.mounts() == ()
    assert tree(nfs.stage) == []
    assert (nfs.exported / "team-a" / "file").read_text() == "data"


@pytest.mark.asyncio
async def test_a_volume_to_be_read_is_mounted_so(tmp_path: Path) -> None:
    """A file system that is mounted read-only is the limit, not the runtime's good will."""
    nfs = Nfs.of(tmp_path)
    volume = ManagedVolume("a", driver="nfs", read_only=True)
    await nfs.driver.attach(volume, "w1")
    assert nfs.kernel.mounts()[-1].is_read_only


@pytest.mark.asyncio
async def test_a_volume_that_becomes_read_only_is_mounted_anew(tmp_path: Path) -> None:
    """A revision that only reads, or writes again, changes the mount that is there."""
    nfs = Nfs.of(tmp_path)
    first = await nfs.driver.attach(VOLUME, "w1")
    await nfs.driver.attach(evolve(VOLUME, read_only=True), "w1")
    assert nfs.commands.ran[-1] == f"mount -o remount,ro -- {first.path}"
    assert nfs.kernel.mounts()[-1].is_read_only
    nfs.commands.on("mount", "-o", "remount,rw", code=32, stderr="no")
    with pytest.raises(StorageFailedError, match="cannot be mounted anew"):
        await nfs.driver.attach(VOLUME, "w1")


STEPS = ["*export-*", "*w1/nfs_*"]


@pytest.mark.parametrize("point", STEPS)
@pytest.mark.asyncio
async def test_a_mount_that_fails_leaves_nothing(tmp_path: Path, point: str) -> None:
    """No mount, no folder, no sub-folder that was made for it, and another may have the volume."""
    nfs = Nfs.of(tmp_path)
    nfs.commands.on("mount", "-t", "*", "-o", "*", "--", "*", point, code=32, stderr="denied")
    with pytest.raises(StorageFailedError, match=r"cannot be mounted at .*: denied"):
        await nfs.driver.attach(VOLUME, "w1")
    assert nfs.kernel.mounts() == ()
    assert tree(nfs.stage) == []
    assert tree(nfs.exported) == []
    nfs.kernel.script(nfs.commands)
    await nfs.driver.attach(VOLUME, "w2")


@pytest.mark.asyncio
async def test_an_export_that_stays_mounted_is_told_and_undone(tmp_path: Path) -> None:
    """The volume itself is unmounted again; the next attempt finds the export and lets go of it."""
    nfs = Nfs.of(tmp_path)
    export = f"{nfs.stage}/.persys/export-team-a"
    nfs.kernel.busy.add(export)
    with pytest.raises(StorageFailedError, match="is in use"):
        await nfs.driver.attach(VOLUME, "w1")
    assert [each.point for each in nfs.kernel.mounts()] == [export]
    nfs.kernel.busy.clear()
    attached = await nfs.driver.attach(VOLUME, "w1")
    assert [each.point for each in nfs.kernel.mounts()] == [attached.path]


@pytest.mark.asyncio
async def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    """A command that took too long is a failure of the volume, with the command in its text."""
    nfs = Nfs.of(tmp_path)
    nfs.commands.on("mount", "-t", error=CommandTimeoutError("`mount …` took longer than 60 s"))
    with pytest.raises(StorageFailedError, match="took longer than 60 s"):
        await nfs.driver.attach(VOLUME, "w1")
    assert tree(nfs.stage) == []


@pytest.mark.asyncio
async def test_a_caller_that_gives_up_leaves_nothing(tmp_path: Path) -> None:
    """Cancelled in the second mount, the first is undone as well."""
    nfs = Nfs.of(tmp_path)
    nfs.commands.on("mount", "-t", "*", "-o", "*", "--", "*", "*w1/nfs_*", hangs=True)
    task = asyncio.create_task(nfs.driver.attach(VOLUME, "w1"))
    await nfs.commands.hanging.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert nfs.kernel.mounts() == ()
    assert tree(nfs.stage) == []
    assert tree(nfs.exported) == []


@pytest.mark.asyncio
async def test_a_mount_that_is_none_is_found_out(tmp_path: Path) -> None:
    """The kernel's list is the truth, not the exit code: containers never get an empty folder of
    this host instead (defect 35)."""
    nfs = Nfs.of(tmp_path)
    nfs.commands.on("mount", "-t", "*", "-o", "*", "--", "*", "*w1/nfs_*", code=0)
    with pytest.raises(StorageFailedError, match="is no mount point"):
        await nfs.driver.attach(VOLUME, "w1")
    assert tree(nfs.stage) == []


@pytest.mark.asyncio
async def test_another_mount_is_left_alone(tmp_path: Path) -> None:
    """What an operator mounted where a volume belongs is neither used nor unmounted."""
    nfs = Nfs.of(tmp_path)
    point = f"{nfs.stage}/w1/nfs_team-a"
    nfs.kernel.table.append(Mount(point, "ext4", "/dev/sdz1"))
    with pytest.raises(StorageFailedError, match="/dev/sdz1"):
        await nfs.driver.attach(VOLUME, "w1")
    with pytest.raises(StorageFailedError, match="/dev/sdz1"):
        await nfs.driver.detach(VOLUME, "w1")
    assert nfs.commands.ran == []
    assert [each.source for each in nfs.kernel.mounts()] == ["/dev/sdz1"]


@pytest.mark.asyncio
async def test_files_in_an_unmounted_stage_folder_stay(tmp_path: Path) -> None:
    """Somebody wrote there while nothing was mounted: that is told and not removed."""
    nfs = Nfs.of(tmp_path)
    folder = nfs.stage / "w1" / "nfs_team-a"
    folder.mkdir(parents=True)
    (folder / "precious").write_text("data")
    with pytest.raises(StorageFailedError, match="holds files"):
        await nfs.driver.detach(VOLUME, "w1")
    assert (folder / "precious").read_text() == "data"


@pytest.mark.asyncio
async def test_a_volume_in_use_stays_attached(tmp_path: Path) -> None:
    """umount failed: nothing is removed, and the volume still counts as used."""
    nfs = Nfs.of(tmp_path)
    attached = await nfs.driver.attach(VOLUME, "w1")
    nfs.kernel.busy.add(attached.path)
    with pytest.raises(StorageFailedError, match="is in use"):
        await nfs.driver.detach(VOLUME, "w1")
    with pytest.raises(StorageFailedError, match="w1 has it"):
        await nfs.driver.attach(VOLUME, "w2")


@pytest.mark.asyncio
async def test_a_new_agent_goes_on(tmp_path: Path) -> None:
    """What is used is on record: a restarted agent refuses the second and detaches the first."""
    nfs = Nfs.of(tmp_path)
    await nfs.driver.attach(VOLUME, "w1")
    again = NfsDriver(settings(tmp_path), nfs.commands, nfs.kernel)
    with pytest.raises(StorageFailedError, match="w1 has it"):
        await again.attach(VOLUME, "w2")
    await again.detach(VOLUME, "w1")
    assert nfs.kernel.mounts() == ()


@pytest.mark.asyncio
async def test_how_much_is_used(tmp_path: Path) -> None:
    """While it is mounted here it is measured; else nobody knows."""
    nfs = Nfs.of(tmp_path)
    nfs.commands.on("du", answer=lambda argv: CommandResult(1, f"4096\t{argv[-1]}\n".encode()))
    assert await nfs.driver.use(VOLUME) is None
    await nfs.driver.attach(ManagedVolume("Team A", driver="nfs", size_gb=2), "w1")
    found = await nfs.driver.use(VOLUME)
    assert found is not None
    assert (found.used_bytes, found.size_bytes) == (4096, 2 << 30)


@pytest.mark.parametrize(
    ("is_set", "kernel", "programs", "told"),
    [
        (False, FakeKernel(), None, "are not set"),
        (True, FakeKernel(root=False), None, "needs root"),
        (True, FakeKernel(), ["mount", "umount"], "install nfs-common"),
        (True, FakeKernel(), None, "this kernel has no nfs"),
        (True, FakeKernel(filesystems=["nfs"]), None, ""),
    ],
    ids=["settings", "root", "tools", "kernel", "all there"],
)
@pytest.mark.asyncio
async def test_what_is_missing_is_told(
    tmp_path: Path,
    is_set: bool,
    kernel: FakeKernel,
    programs: list[str] | None,
    told: str,
) -> None:
    """The driver is advertised only where settings, user, tools and kernel are there."""
    commands = ScriptedCommands(programs=programs).on("modprobe", code=1)
    unset = {"PERSYS_STORAGE_NFS_SERVER": "", "PERSYS_STORAGE_NFS_EXPORT": ""}
    given = settings(tmp_path, **({} if is_set else unset))
    found = await NfsDriver(given, commands, kernel).probe()
    assert found.is_available is (not told)
    assert told in found.detail


@pytest.mark.asyncio
async def test_a_module_that_can_be_loaded_is_enough(tmp_path: Path) -> None:
    """mount loads it."""
    commands = ScriptedCommands().on("modprobe", "--dry-run", "nfs")
    assert (await NfsDriver(settings(tmp_path), commands, FakeKernel()).probe()).is_available
