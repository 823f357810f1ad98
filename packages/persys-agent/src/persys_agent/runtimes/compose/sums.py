"""What an application's containers may have together: no more than the workload asks for.

Decided here: by which means. Every container of a project stands below one parent group, and the
parent has the limits. With Docker's own driver for cgroups that is a folder of the kernel's tree,
with systemd's a slice. Where the agent can have neither (a daemon elsewhere, no right to write),
each service alone is held to the whole (``caps``), which is said by the probe. What a project is
held to stands in the labels of its containers, so that it is known after the host was restarted.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

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


def hold_labelled(project: str, labels: Mapping[str, str]) -> Hold:
    """The hold of a project whose containers have these labels. Only a parent that is this
    project's own is one: the file of an older release may have named any."""
    asked = Resources.of(cpu_millicores=number(labels, _CPU), memory_mb=number(labels, _MEMORY))
    parent = labels.get(_PARENT, "")
    return Hold(project, asked, parent if parent in (_folder(project), _slice(project)) else "")


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
    _held: dict[str, Hold] = field(factory=dict, init=False)

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
        if not hold.parent:
            await self.release(hold.project)
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
        self._held[hold.project] = hold

    async def keep(self, hold: Hold) -> None:
        """Enforce it again where this process has not yet: Docker starts containers by itself when
        the host comes up, in groups without limits. Raises nothing, and tries it once."""
        if not hold.parent or self._held.get(hold.project) == hold:
            return
        self._held[hold.project] = hold
        try:
            await self.enforce(hold)
        except RuntimeFailedError as error:
            structlog.get_logger().warning(
                "sum_not_limited", project=hold.project, reason=str(error)
            )

    async def release(self, project: str) -> None:
        """Remove the parent of a project whose containers are gone, or stand elsewhere; nothing
        where there is none. What still runs in a slice would be stopped with it."""
        self._held.pop(project, None)
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
