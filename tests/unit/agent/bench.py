"""A node on doubles: its machine outlives it, so that it can be killed and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from attrs import define, field

from persys_agent.engine.backends import Backends
from persys_agent.engine.wishes import wish_from
from persys_agent.node.assembly import Assembly, NodeOptions, assemble
from persys_agent.runtimes.docker.checks import check_container
from persys_agent.runtimes.port import Owner
from persys_agent.state.records import TaskKind
from persys_agent.state.store import AgentState
from persys_agent.testing import (
    InlineState,
    MemoryDisks,
    MemoryHost,
    MemoryRuntime,
    MemoryStorage,
)
from persys_core.model.observation import AgentReport
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock
from persys_proto.agent.v1 import agent_pb2 as wire

__all__ = ["Bench", "Node", "apply_message", "volume"]

POLL = timedelta(seconds=0.05)
SIZE = Resources.of(cpu_millicores=4000, memory_mb=4096)


def volume(name: str, *, driver: str = "", retain: str = "") -> wire.ManagedVolumeSpec:
    """A managed volume of that name."""
    return wire.ManagedVolumeSpec(
        name=name, mount_path=f"/{name}", driver=driver, retain_policy=retain
    )


def apply_message(
    workload_id: str = "w1",
    *,
    revision: str = "r1",
    image: str = "nginx",
    stopped: bool = False,
    policy: str = "no",
    cpu: int = 100,
    env: dict[str, str] | None = None,
    volumes: tuple[wire.ManagedVolumeSpec, ...] = (),
) -> wire.ApplyWorkloadRequest:
    """An apply of a container."""
    container = wire.ContainerSpec(
        image=image,
        env=env or {},
        restart_policy=wire.RestartPolicy(policy=policy),
        managed_volumes=volumes,
    )
    return wire.ApplyWorkloadRequest(
        id=workload_id,
        type=wire.WORKLOAD_TYPE_CONTAINER,
        revision_id=revision,
        desired_state=wire.DESIRED_STATE_STOPPED if stopped else wire.DESIRED_STATE_RUNNING,
        spec=wire.WorkloadSpec(container=container),
        resources=wire.RequestedResources(cpu_millicores=cpu, memory_mb=64),
    )


@define(eq=False)
class Node:
    """A node whose queue works; its loops run only where a test runs them."""

    assembly: Assembly
    file: InlineState
    clock: Clock

    async def apply(self, message: wire.ApplyWorkloadRequest) -> None:
        """Take an apply in, without waiting for its end."""
        wish = wish_from(message)
        await self.assembly.works.queue.submit(
            TaskKind.APPLY, message.id, request=wish.request, revision_id=message.revision_id
        )

    async def delete(self, workload_id: str = "w1", *, volumes: bool = False) -> None:
        """Take a delete in, without waiting for its end."""
        await self.assembly.works.queue.submit(TaskKind.DELETE, workload_id, delete_volumes=volumes)

    async def settled(self) -> None:
        """Wait until no task is open."""
        while self.assembly.works.queue.depth:
            await self.clock.sleep(POLL)

    async def applied(self, message: wire.ApplyWorkloadRequest) -> AgentReport:
        """Apply, and the report after its end."""
        await self.apply(message)
        await self.settled()
        return await self.report(message.id)

    async def report(self, workload_id: str = "w1") -> AgentReport:
        """The report of a workload that is there."""
        found = await self.assembly.works.board.report(workload_id)
        assert found is not None, f"{workload_id} is not there"
        return found

    async def look(self) -> None:
        """One pass of the local loop, with its repairs."""
        await self.assembly.loop.pass_once()
        await self.assembly.loop.settled()

    def errors(self) -> list[str]:
        """The errors of the tasks that failed, oldest first."""
        found = self.assembly.works.queue.history.find(state="failed")
        return [task.error for task in found]


@define
class Bench:
    """The machine of a node, and its disk at ``folder``."""

    clock: Clock
    folder: Path
    options: NodeOptions = NodeOptions("n1", SIZE)
    host: MemoryHost = field(init=False)
    disks: MemoryDisks = field(init=False)
    kinds: tuple[WorkloadType, ...] = (WorkloadType.CONTAINER, WorkloadType.VM)

    def __attrs_post_init__(self) -> None:
        self.host = MemoryHost(self.clock)
        self.disks = MemoryDisks(self.clock)

    def with_options(self, change: Callable[[NodeOptions], NodeOptions]) -> Bench:
        """The same machine for a node of other options."""
        self.options = change(self.options)
        return self

    def backends(self) -> Backends:
        """New runtimes and drivers on the machine."""
        owner = Owner(self.options.node_id, self.options.cluster_id)
        runtimes = {kind: MemoryRuntime(self.host, owner, kind) for kind in self.kinds}
        drivers = (MemoryStorage(self.disks), MemoryStorage(self.disks, "ceph-rbd"))
        checks = {WorkloadType.CONTAINER: check_container}
        return Backends(runtimes, runtimes, {each.name: each for each in drivers}, checks)

    @asynccontextmanager
    async def node(self, *, die_at: int | None = None) -> AsyncIterator[Node]:
        """A process of the node, which is killed at the end of the block."""
        async with InlineState(self.folder / "state.db", die_at=die_at) as file:
            state = AgentState(file)
            await state.load()
            assembly = assemble(self.options, state, self.backends(), self.clock, random.Random(1))
            await assembly.detector.detect()
            assembly.works.queue.start()
            try:
                yield Node(assembly, file, self.clock)
            finally:
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    task.cancel()  # a process that is killed ends nothing in order
                await asyncio.sleep(0)
                await assembly.works.queue.stop()
