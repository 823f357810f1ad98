"""The parent of an application's containers: by which means, and what is written."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.commands import CommandResult
from persys_agent.runtimes.compose.cgroups import CgroupTree
from persys_agent.runtimes.compose.sums import Hold, SumLimits, SystemdFolders, hold_labelled
from persys_agent.runtimes.docker.documents import Document
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.port import RuntimeFailedError
from persys_core.model.resources import Resources

ASKED = Resources.of(cpu_millicores=250, memory_mb=64)
PROJECT = "shop-0123456789ab"
SLICE = "persys-0123456789ab.slice"


class Daemon(Engine):
    """Answers nothing but what it is."""

    def __init__(self, info: Document, endpoint: str = "unix:///d.sock") -> None:
        super().__init__(endpoint)
        self._info = info

    async def info(self) -> Document:
        return self._info


class Programs:
    """Remembers what was called."""

    def __init__(self, code: int = 0) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.code = code

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        self.calls.append(tuple(argv))
        return CommandResult(self.code, said="no bus")

    def find(self, program: str) -> str:
        return program


def tree_v1(root: Path) -> CgroupTree:
    for controller in ("cpu", "memory", "pids"):
        (root / controller).mkdir(parents=True)
    return CgroupTree(root)


def tree_v2(root: Path) -> CgroupTree:
    """Its files are as the kernel has them, except that they are not made with a folder."""
    for folder in (root, root / "persys"):
        folder.mkdir(parents=True)
        (folder / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        (folder / "cgroup.subtree_control").write_text("memory\n")
    return CgroupTree(root)


def sums(
    root: Path, info: Document, programs: Programs | None = None, endpoint: str = "unix:///d.sock"
) -> SumLimits:
    folders = SystemdFolders(root / "system", root / "control")
    tree = CgroupTree(root / "cgroup")
    return SumLimits(Daemon(info, endpoint), programs or Programs(), tree, folders)


def values(folder: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in folder.iterdir() if each.is_file()}


@pytest.mark.asyncio
async def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    """Memory is limited without swap, CPU time by a quota; less and more may follow."""
    tree_v1(tmp_path / "cgroup")
    made = sums(tmp_path, {"CgroupDriver": "cgroupfs", "CgroupVersion": "1"})
    assert await made.problem() == ""
    hold = await made.prepare(PROJECT, ASKED)
    assert hold.parent == f"/persys/{PROJECT}"
    memory = tmp_path / "cgroup" / "memory" / "persys" / PROJECT
    (memory / "memory.memsw.limit_in_bytes").write_text("")
    await made.enforce(hold)
    assert values(memory) == {
        "memory.limit_in_bytes": str(64 << 20),
        "memory.memsw.limit_in_bytes": str(64 << 20),
    }
    cpu = tmp_path / "cgroup" / "cpu" / "persys" / PROJECT
    assert values(cpu) == {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "25000"}
    await made.enforce(await made.prepare(PROJECT, Resources.of(cpu_millicores=500)))
    assert values(memory)["memory.limit_in_bytes"] == "-1"
    assert values(cpu)["cpu.cfs_quota_us"] == "50000"


@pytest.mark.asyncio
async def test_version_2_has_one_folder(tmp_path: Path) -> None:
    """Controllers are handed down to it, those that are there already not again."""
    tree_v2(tmp_path / "cgroup")
    made = sums(tmp_path, {"CgroupDriver": "cgroupfs", "CgroupVersion": "2"})
    assert await made.problem() == ""
    hold = await made.prepare(PROJECT, ASKED)
    assert (tmp_path / "cgroup" / "cgroup.subtree_control").read_text() == "+cpu"
    folder = tmp_path / "cgroup" / "persys" / PROJECT
    (folder / "memory.swap.max").write_text("")
    await made.enforce(hold)
    assert values(folder) == {
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "cpu.max": "25000 100000",
    }
    await made.enforce(Hold(PROJECT, Resources.of(memory_mb=1), hold.parent))
    assert values(folder)["cpu.max"] == "max 100000"


@pytest.mark.asyncio
async def test_systemd_has_a_slice(tmp_path: Path) -> None:
    """Its properties are set until the host's next start, and taken back with the project."""
    (tmp_path / "system").mkdir()
    programs = Programs()
    made = sums(tmp_path, {"CgroupDriver": "systemd", "CgroupVersion": "2"}, programs)
    hold = await made.prepare(PROJECT, ASKED)
    assert hold.parent == SLICE
    await made.enforce(hold)
    limits = ("CPUQuota=25%", f"MemoryMax={64 << 20}", "MemorySwapMax=0")
    assert programs.calls == [("systemctl", "set-property", "--runtime", SLICE, *limits)]
    (tmp_path / "control" / f"{SLICE}.d").mkdir(parents=True)
    await made.release(PROJECT)
    assert programs.calls[1:] == [("systemctl", "stop", SLICE), ("systemctl", "revert", SLICE)]


@pytest.mark.parametrize(
    ("info", "endpoint", "told"),
    [
        ({"CgroupDriver": "cgroupfs"}, "tcp://far:2375", "another machine"),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "2"}, "", "other cgroups"),
        ({"CgroupDriver": "cgroupfs", "CgroupVersion": "1"}, "", "no controller cpu and memory"),
        ({"CgroupDriver": "systemd"}, "", "systemd, which does not run"),
        ({"CgroupDriver": "none"}, "", 'the driver "none"'),
        ({"CgroupDriver": "cgroupfs", "SecurityOptions": ["name=rootless"]}, "", "without root"),
    ],
)
@pytest.mark.asyncio
async def test_where_there_is_no_parent_it_is_said_why(
    tmp_path: Path, info: Document, endpoint: str, told: str
) -> None:
    """Nothing is made then, and the services are limited alone."""
    made = sums(tmp_path, info, endpoint=endpoint or "unix:///d.sock")
    assert told in await made.problem()
    assert await made.prepare(PROJECT, ASKED) == Hold(PROJECT, ASKED)


@pytest.mark.asyncio
async def test_what_cannot_be_enforced_is_a_failure(tmp_path: Path) -> None:
    """A promise that the kernel or systemd does not take is not silently dropped."""
    made = sums(tmp_path, {}, Programs(code=1))
    with pytest.raises(RuntimeFailedError, match="set-property: no bus"):
        await made.enforce(Hold(PROJECT, ASKED, SLICE))
    with pytest.raises(RuntimeFailedError, match="No such file"):
        await made.enforce(Hold(PROJECT, ASKED, f"/persys/{PROJECT}"))


class Hesitant(CgroupTree):
    """Takes no limit as long as it is the same group, as a kernel that sees containers that are
    gone."""

    is_new = False
    limited = False

    def limit(self, name: str, asked: Resources) -> None:
        if not self.is_new:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.limited = True

    def remove(self, name: str) -> bool:
        self.is_new = True
        return True


@pytest.mark.asyncio
async def test_a_group_with_a_past_is_made_anew(tmp_path: Path) -> None:
    """Less CPU time is refused while a container that had more is not forgotten yet."""
    tree = Hesitant(tmp_path)
    made = SumLimits(Daemon({}), Programs(), tree)
    await made.enforce(Hold(PROJECT, ASKED, f"/persys/{PROJECT}"))
    assert tree.limited


async def tried() -> None:
    """What was begun beside a look has ended."""
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})


@pytest.mark.asyncio
async def test_limits_come_back_with_the_host(tmp_path: Path) -> None:
    """What Docker started by itself is held again, once."""
    programs = Programs()
    made = sums(tmp_path, {}, programs)
    hold = hold_labelled(PROJECT, Hold(PROJECT, ASKED, SLICE).labels)
    made.keep_trying(hold)
    made.keep_trying(hold)
    assert programs.calls == []  # a look has no time for it
    await tried()
    made.keep_trying(hold)
    await made.keep(hold)
    await tried()
    assert len(programs.calls) == 1


@pytest.mark.asyncio
async def test_what_could_not_be_held_is_tried_again(tmp_path: Path) -> None:
    """A systemd that is not up yet, or slow, leaves nothing without limits for good; it is asked
    ever more seldom, and anew where something else is to be held."""
    programs, now = Programs(code=1), 0.0
    tree = CgroupTree(tmp_path / "cgroup")
    made = SumLimits(Daemon({}), programs, tree, SystemdFolders(tmp_path), clock=lambda: now)
    hold = Hold(PROJECT, ASKED, SLICE)
    tries = []
    for now in map(float, range(100)):
        before = len(programs.calls)
        made.keep_trying(hold)
        await tried()
        tries += [now] * (len(programs.calls) - before)
    assert tries == [0, 5, 15, 35, 75]
    made.keep_trying(Hold(PROJECT, Resources.of(memory_mb=32), SLICE))
    await tried()
    assert len(programs.calls) == 6
    await made.keep(hold)  # a start does not wait for that
    assert len(programs.calls) == 7
    programs.code, now = 0, 1000.0
    made.keep_trying(hold)
    await tried()
    made.keep_trying(hold)
    await tried()
    assert len(programs.calls) == 8


class Slow(Programs):
    """Ends no program before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let, self.began = asyncio.Event(), asyncio.Event()

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        self.began.set()
        await self.let.wait()
        return await super().run(argv, timeout=timeout)


@pytest.mark.asyncio
async def test_what_is_tried_late_undoes_nothing(tmp_path: Path) -> None:
    """One that waits for its turn does nothing to a project that was removed, or is held to more,
    meanwhile."""
    slow = Slow()
    made = sums(tmp_path, {}, slow)
    newer = Hold(PROJECT, Resources.of(cpu_millicores=500), SLICE)
    enforcing = asyncio.create_task(made.enforce(newer))
    await slow.began.wait()
    made.keep_trying(Hold(PROJECT, ASKED, SLICE))
    releasing = asyncio.create_task(made.release(PROJECT))
    await asyncio.sleep(0)
    slow.let.set()
    await asyncio.gather(enforcing, releasing)
    await tried()
    words = ("CPUQuota=50%", "MemoryMax=infinity", "MemorySwapMax=infinity")
    assert slow.calls == [("systemctl", "set-property", "--runtime", SLICE, *words)]


@pytest.mark.asyncio
async def test_the_end_of_an_agent_waits_for_no_program(tmp_path: Path) -> None:
    """What is tried beside looks ends with it."""
    slow = Slow()
    made = sums(tmp_path, {}, slow)
    made.keep_trying(Hold(PROJECT, ASKED, SLICE))
    await slow.began.wait()
    await made.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_containers_of_several_revisions_are_held_by_what_has_a_parent() -> None:
    """One that stands nowhere does not take the parent from under those that stand in it."""
    none, less = Hold(PROJECT, Resources()), Hold(PROJECT, ASKED, SLICE)
    more = Hold(PROJECT, Resources.of(cpu_millicores=100, memory_mb=128), SLICE)
    free = Hold(PROJECT, Resources.of(memory_mb=32), SLICE)

    def found(*holds: Hold) -> Hold:
        return hold_labelled(PROJECT, *(each.labels for each in holds))

    assert found(none, less) == less
    assert found(none, none) == none
    assert found(less, more).asked == Resources.of(cpu_millicores=250, memory_mb=128)
    assert found(less, free).asked == Resources.of(memory_mb=64)


def test_labels_name_no_other_parent() -> None:
    """Those of a file of somebody's are not obeyed."""
    for parent in ("/", "system.slice", "/persys/other"):
        found = hold_labelled(PROJECT, {"persys.cgroup_parent": parent, "persys.memory_mb": "x"})
        assert found == Hold(PROJECT, Resources())


@pytest.mark.asyncio
async def test_nothing_asked_needs_no_parent(tmp_path: Path) -> None:
    """Older schedulers tell no resources; the daemon is not asked then."""
    assert await sums(tmp_path, {}).prepare(PROJECT, Resources()) == Hold(PROJECT, Resources())
