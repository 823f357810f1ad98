"""What an application's containers may have together: no more than the workload asks for.

Decided here: by which means. Every container of a project stands below one parent group, and the
parent has the limits. With Docker's own driver for cgroups that is a folder of the kernel's tree,
with systemd's a slice. Where the agent can have neither (a daemon elsewhere, no right to write),
each service alone is held to the whole (``caps``), which is said by the probe. What a project is
held to stands in the labels of its containers, so that it is known after the host was restarted.
Only what was enforced counts as held. What a look finds not held is tried beside it, ever more
seldom.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from weakref import WeakValueDictionary

import structlog
from attrs import field, frozen

from persys_agent.commands import CommandError, Commands
from persys_agent.runtimes.compose.cgroups import BASE, CgroupTree
from persys_agent.runtimes.docker.documents import Document, at, number, text
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.resources import CPU, MEMORY, Resources

__all__ = ["Hold", "SumLimits", "hold_labelled"]

_PARENT = "persys.cgroup_parent"
_CPU = "persys.cpu_millicores"
_MEMORY = "persys.memory_mb"
_DRIVER = "CgroupDriver"
_SLICE = ".slice"
_BYTES_PER_MB = 1024 * 1024
_MILLICORES_PER_PERCENT = 10
_TRIES = 20
_WAIT_SECONDS = 0.05
_NOT_YET = (errno.EINVAL, errno.EBUSY)
_PATIENCE = timedelta(seconds=20)
_FIRST_SECONDS = 5.0
_LONGEST_SECONDS = 300.0
_AT_ONCE = 4


@frozen
class Hold:
    """What a project is held to, and by which parent of its containers; none where there is no
    parent."""

    project: str
    asked: Resources
    parent: str = ""

    @property
    def labels(self) -> Mapping[str, str]:
        """What the containers of the project say of it: all of it, also what is nothing, so that
        no label of the file stands there instead."""
        cpu, memory = str(self.asked.get(CPU)), str(self.asked.get(MEMORY))
        return {_PARENT: self.parent, _CPU: cpu, _MEMORY: memory}


def hold_labelled(project: str, labels: Mapping[str, str], *more: Mapping[str, str]) -> Hold:
    """The hold of a project whose containers have these labels. Only a parent that is this
    project's own is one: the file of an older release may have named any. Where containers of
    several revisions stand, one below a parent counts, which is not to go with it in it, and the
    most that any was promised."""
    found = [_labelled(project, each) for each in (labels, *more)]
    held = [each for each in found if each.parent] or found[:1]
    asked = {name: _most(each.asked.get(name) for each in held) for name in (CPU, MEMORY)}
    return Hold(project, Resources(asked), held[0].parent)


def _labelled(project: str, labels: Mapping[str, str]) -> Hold:
    asked = Resources.of(cpu_millicores=number(labels, _CPU), memory_mb=number(labels, _MEMORY))
    parent = labels.get(_PARENT, "")
    return Hold(project, asked, parent if parent in (_folder(project), _slice(project)) else "")


def _most(amounts: Iterable[int]) -> int:
    """The most of them, where 0 is no limit at all."""
    known = list(amounts)
    return 0 if 0 in known else max(known)


@frozen
class _Failed:
    """A hold that could not be enforced: how often, and when it is tried again."""

    hold: Hold
    attempts: int
    next_at: float


@frozen
class SystemdFolders:
    """Where systemd says that it runs, and what was set until the next start of the host."""

    running: Path = Path("/run/systemd/system")
    runtime: Path = Path("/run/systemd/system.control")


@frozen
class SumLimits:
    """Holds projects to their sums, on the daemon of ``engine``."""

    engine: Engine
    commands: Commands
    tree: CgroupTree
    systemd: SystemdFolders = SystemdFolders()
    clock: Callable[[], float] = time.monotonic
    _held: dict[str, Hold] = field(factory=dict, init=False)
    _failed: dict[str, _Failed] = field(factory=dict, init=False)
    _tries: dict[str, asyncio.Task[None]] = field(factory=dict, init=False)
    _running: set[asyncio.Task[None]] = field(factory=set, init=False)
    _slots: asyncio.Semaphore = field(factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(
        factory=WeakValueDictionary[str, asyncio.Lock], init=False
    )

    async def problem(self) -> str:
        """Why a sum cannot be held here; empty where it can. Raises where the Engine is silent."""
        return await asyncio.to_thread(self._problem, await self._info())

    async def prepare(self, project: str, asked: Resources) -> Hold:
        """Have the parent ready where there is one. Raises where the Engine is silent."""
        if not asked.get(CPU) and not asked.get(MEMORY):
            return Hold(project, asked)
        info = await self._info()
        problem = await asyncio.to_thread(self._problem, info)
        if not problem and _driver(info) == "systemd":
            return Hold(project, asked, _slice(project))
        if not problem:
            try:
                await asyncio.to_thread(self.tree.make, project)
                return Hold(project, asked, _folder(project))
            except OSError as error:
                problem = f"{error.filename or BASE}: {error.strerror}"
        structlog.get_logger().warning("sum_not_limited", project=project, reason=problem)
        return Hold(project, asked)

    async def enforce(self, hold: Hold) -> None:
        """Have the kernel hold it. Raises ``RuntimeFailedError``."""
        self._tries.pop(hold.project, None)
        async with self._lock(hold.project):
            await self._enforce(hold)

    async def keep(self, hold: Hold) -> None:
        """Enforce it again where this process has not yet: Docker starts containers by itself when
        the host comes up, in groups without limits. Raises nothing: what runs is not ended because
        it could not be held, and ``keep_trying`` comes back to it."""
        if not hold.parent or self._held.get(hold.project) == hold:
            return
        self._tries.pop(hold.project, None)
        async with self._lock(hold.project):
            await self._try(hold)

    def keep_trying(self, hold: Hold) -> None:
        """The same for a look, which has no time for it: at once, but beside the look; after a
        failure not before its wait is over, which gets longer each time."""
        project, failed = hold.project, self._failed.get(hold.project)
        if not hold.parent or self._held.get(project) == hold or project in self._tries:
            return
        if failed is not None and failed.hold == hold and self.clock() < failed.next_at:
            return
        task = asyncio.create_task(self._try_beside(hold), name=f"limit-{project}")
        self._tries[project] = task
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def aclose(self) -> None:
        """End what is tried now; the groups stay as they are."""
        running = list(self._running)
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def release(self, project: str) -> None:
        """Remove the parent of a project whose containers are gone, or stand elsewhere; nothing
        where there is none. What still runs in a slice would be stopped with it."""
        self._tries.pop(project, None)
        async with self._lock(project):
            await self._release(project)

    def _lock(self, project: str) -> asyncio.Lock:
        """One thing at a time is done to the parent of a project."""
        return self._locks.setdefault(project, asyncio.Lock())

    async def _try_beside(self, hold: Hold) -> None:
        """Nothing where the project was enforced or released while this waited: it may be gone."""
        me = asyncio.current_task()
        try:
            async with self._slots, self._lock(hold.project):
                if self._tries.get(hold.project) is me:
                    await self._try(hold)
        finally:
            if self._tries.get(hold.project) is me:
                del self._tries[hold.project]

    async def _try(self, hold: Hold) -> None:
        try:
            await self._enforce(hold)
        except RuntimeFailedError as error:
            before = self._failed.get(hold.project)
            attempts = before.attempts + 1 if before is not None and before.hold == hold else 0
            wait = min(_FIRST_SECONDS * 2 ** min(attempts, 10), _LONGEST_SECONDS)
            self._failed[hold.project] = _Failed(hold, attempts, self.clock() + wait)
            structlog.get_logger().warning(
                "sum_not_limited",
                project=hold.project,
                reason=str(error),
                next_try_in_seconds=int(wait),
            )

    async def _enforce(self, hold: Hold) -> None:
        self._held.pop(hold.project, None)  # a half of it may be written before it fails
        if not hold.parent:
            await self._release(hold.project)
            return
        try:
            if hold.parent.endswith(_SLICE):
                await self._systemctl("set-property", "--runtime", hold.parent, *_words(hold.asked))
            else:
                await self._limit(hold)
        except (OSError, CommandError) as error:
            raise RuntimeFailedError(
                FailureCode.RUNTIME_ERROR,
                f"the application cannot be held to what it asks for ({hold.parent}): {error}",
            ) from error
        self._failed.pop(hold.project, None)
        self._held[hold.project] = hold

    async def _release(self, project: str) -> None:
        self._held.pop(project, None)
        self._failed.pop(project, None)
        name = _slice(project)
        if self._drop_ins(project).exists():
            try:
                await self._systemctl("stop", name)
                await self._systemctl("revert", name)
            except CommandError as error:
                structlog.get_logger().warning("slice_left", slice=name, reason=str(error))
        for _ in range(_TRIES):  # the kernel takes a moment to see that the last process is gone
            if await asyncio.to_thread(self.tree.remove, project):
                return
            await asyncio.sleep(_WAIT_SECONDS)
        structlog.get_logger().warning("cgroup_left", project=project)

    async def _limit(self, hold: Hold) -> None:
        """The kernel may take seconds to forget containers that are gone, and as long refuses less
        than they had: a group made anew, where nothing runs in it, has no such past."""
        for left in reversed(range(_TRIES)):
            try:
                await asyncio.to_thread(self.tree.limit, hold.project, hold.asked)
                return
            except OSError as error:
                if error.errno not in _NOT_YET or not left:
                    raise
            await asyncio.to_thread(self.tree.remove, hold.project)
            await asyncio.sleep(_WAIT_SECONDS)

    async def _info(self) -> Document:
        try:
            return await self.engine.info()
        except EngineError as error:
            return {_DRIVER: f"unknown: {error}"}

    def is_there(self, project: str) -> bool:
        """Whether a parent of the project is there."""
        return self.tree.has(project) or self._drop_ins(project).exists()

    def _drop_ins(self, project: str) -> Path:
        return self.systemd.runtime / f"{_slice(project)}.d"

    def _problem(self, info: Document) -> str:
        if not self.engine.endpoint.startswith("unix://"):
            return f"the daemon at {self.engine.endpoint} may be on another machine"
        if "rootless" in str(at(info, "SecurityOptions")):
            return "the daemon runs without root"
        match _driver(info):
            case "systemd":
                return self._slice_problem()
            case "cgroupfs":
                return self._tree_problem(text(info, "CgroupVersion") or "1")
            case other:
                return f'the daemon has the driver "{other}" for cgroups'

    def _slice_problem(self) -> str:
        if not self.systemd.running.is_dir():
            return "the daemon has slices of systemd, which does not run where the agent does"
        return "" if os.geteuid() == 0 else "only root may set the limits of a slice"

    def _tree_problem(self, version: str) -> str:
        if version != self.tree.version:
            return "the daemon sees other cgroups than the agent"
        try:
            return self.tree.problem()
        except OSError as error:
            return f"{error.filename}: {error.strerror}"

    async def _systemctl(self, *words: str) -> None:
        ended = await self.commands.run(("systemctl", *words), timeout=_PATIENCE)
        if not ended.ok:
            raise CommandError(f"systemctl {words[0]}: {ended.said or ended.code}")


def _driver(info: Document) -> str:
    return text(info, _DRIVER)


def _folder(project: str) -> str:
    return f"/{BASE}/{project}"


def _slice(project: str) -> str:
    """A dash in the name of a slice stands for *below*, so only the digest can be in it."""
    return f"{BASE}-{project.rpartition('-')[2]}{_SLICE}"


def _words(asked: Resources) -> tuple[str, ...]:
    cpu, memory = asked.get(CPU), asked.get(MEMORY)
    return (
        f"CPUQuota={cpu / _MILLICORES_PER_PERCENT:g}%" if cpu else "CPUQuota=",
        f"MemoryMax={memory * _BYTES_PER_MB}" if memory else "MemoryMax=infinity",
        "MemorySwapMax=0" if memory else "MemorySwapMax=infinity",
    )
