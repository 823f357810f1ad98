"""``MemoryRuntime``: a runtime whose instances live in a dict.

Decided here: what the word in an image's name makes of an instance. ``MemoryHost`` is the machine:
it survives the agent, and several agents may share it. Words: ``missing`` (no such image),
``nostart`` (cannot be started), ``slow`` (creating takes ``SLOW``), ``exit0`` (ends at once, with
0; any other number likewise), ``crash`` (ends at once, with 1).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta

from attrs import define, evolve, field

from persys_agent.runtimes.port import (
    Capability,
    Creation,
    ExecExit,
    ExecOutput,
    FailureCode,
    Instance,
    LogLine,
    Order,
    Owner,
    PortTakenError,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.testing.faults import Faults
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.observation import AgentState
from persys_core.model.spec import ContainerSpec
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage
from persys_core.ports.clock import Clock

__all__ = ["SLOW", "MemoryHost", "MemoryRuntime"]

SLOW = timedelta(seconds=1)
_ENDING = re.compile(r"exit(?P<code>\d+)|crash")


@define
class _Kept:
    owner: Owner
    order: Order
    instance: Instance


@define
class MemoryHost:
    """What is on the machine: one instance per kind and workload id, whosever it is.

    ``is_up`` false: nobody answers. ``faults`` breaks single calls. ``made`` and ``started`` count
    what really happened, not what was asked for. ``foreign_ports`` are other programs'.
    """

    clock: Clock
    is_up: bool = True
    made: Counter[WorkloadId] = field(factory=Counter)
    started: Counter[WorkloadId] = field(factory=Counter)
    foreign_ports: set[int] = field(factory=set)
    faults: Faults = field(init=False)
    _kept: dict[tuple[WorkloadType, WorkloadId], _Kept] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.faults = Faults(self.clock)

    def instance(
        self, workload_id: WorkloadId, kind: WorkloadType = WorkloadType.CONTAINER
    ) -> Instance | None:
        """What the machine has under this name."""
        kept = self._kept.get((kind, workload_id))
        return kept.instance if kept else None

    def end(
        self,
        workload_id: WorkloadId,
        code: int,
        kind: WorkloadType = WorkloadType.CONTAINER,
    ) -> None:
        """Let a running instance end by itself."""
        kept = self._kept[kind, workload_id]
        kept.instance = _ended(kept.instance, code, self.clock)

    def hold_up(self, workload_id: WorkloadId, kind: WorkloadType = WorkloadType.CONTAINER) -> None:
        """It is starting, and is for as long as nothing else happens to it."""
        kept = self._kept[kind, workload_id]
        kept.instance = evolve(kept.instance, state=AgentState.PENDING, message="starting")

    def lose(self, workload_id: WorkloadId, kind: WorkloadType = WorkloadType.CONTAINER) -> None:
        """Remove an instance without a word to the agent."""
        del self._kept[kind, workload_id]


class MemoryRuntime:
    """Implements ``runtimes.port.Runtime`` and ``Interactive`` on a ``MemoryHost``."""

    def __init__(
        self, host: MemoryHost, owner: Owner, kind: WorkloadType = WorkloadType.CONTAINER
    ) -> None:
        self.kind = kind
        self._host = host
        self._owner = owner

    async def probe(self) -> Capability:
        """As the port says."""
        up = self._host.is_up
        return Capability(up, "memory" if up else "the memory runtime is down")

    async def create(self, order: Order) -> Creation:
        """As the port says."""
        if not is_valid_id(order.workload_id):
            raise RuntimeFailedError(FailureCode.INVALID_SPEC, "the id could be a path")
        await self._call("create", order.workload_id)
        kept = self._host._kept.get((self.kind, order.workload_id))
        if kept is not None and kept.owner != self._owner:
            raise RuntimeFailedError(
                FailureCode.NAME_CONFLICT,
                f'container name "{order.workload_id}" is already in use',
            )
        shown = kept.instance if kept is not None else None
        if shown is not None and order.is_of(shown.revision_id, shown.spec_hash):
            return Creation.ADOPTED
        await self._pull(order)
        self._host.made[order.workload_id] += 1
        self._host._kept[self.kind, order.workload_id] = _Kept(
            self._owner,
            order,
            Instance(
                order.workload_id,
                order.revision_id,
                order.spec_hash,
                AgentState.STOPPED,
                "created",
                metadata={"container.state": "created"},
            ),
        )
        return Creation.CREATED if kept is None else Creation.REPLACED

    async def start(self, workload_id: WorkloadId) -> None:
        """As the port says."""
        await self._call("start", workload_id)
        kept = self._mine(workload_id)
        if kept is None:
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"there is no {workload_id}")
        word = _image(kept.order)
        if "nostart" in word:
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, "it will not start")
        if kept.instance.state is AgentState.RUNNING:
            return
        self._bind_ports(kept)
        self._host.started[workload_id] += 1
        kept.instance = evolve(
            kept.instance,
            state=AgentState.RUNNING,
            message="running",
            exit_code=None,
            started_at=self._host.clock.now(),
            metadata={"container.state": "running"},
        )
        if ending := _ENDING.search(word):
            self._host.end(workload_id, int(ending["code"] or 1), self.kind)

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """As the port says."""
        await self._call("stop", workload_id)
        kept = self._mine(workload_id)
        if kept is not None and kept.instance.state is AgentState.RUNNING:
            kept.instance = _ended(kept.instance, 0, self._host.clock)

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """As the port says."""
        await self._call("remove_with_data" if with_data else "remove", workload_id)
        if self._mine(workload_id) is not None:
            self._host.lose(workload_id, self.kind)

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """As the port says."""
        await self._call("inspect", workload_id)
        kept = self._mine(workload_id)
        return kept.instance if kept else None

    async def instances(self) -> Sequence[Instance]:
        """As the port says."""
        await self._call("instances")
        return [
            kept.instance
            for (kind, _), kept in sorted(self._host._kept.items())
            if kind is self.kind and kept.owner == self._owner
        ]

    async def aclose(self) -> None:
        """As the port says."""

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """As the port says: each running instance uses one percent and a megabyte."""
        now = self._host.clock.now()
        node_id = self._owner.node_id
        return {
            each.workload_id: WorkloadUsage(
                each.workload_id, node_id, self.kind, 1.0, 1_000_000, 0, 0, 0, 0, now, "memory"
            )
            for each in await self.instances()
            if each.state is AgentState.RUNNING
        }

    async def logs(
        self, workload_id: WorkloadId, *, tail: int, follow: bool
    ) -> AsyncIterator[LogLine]:
        """As the port says: three lines, of which the last ``tail`` are given."""
        await self._call("logs", workload_id)
        lines = [LogLine(f"line {number}") for number in (1, 2, 3)]
        for line in lines[-tail:] if tail else []:
            yield line
        if follow:
            yield LogLine("followed")

    async def execute(
        self,
        workload_id: WorkloadId,
        command: Sequence[str],
        input: AsyncIterator[bytes],
        *,
        tty: bool = False,
    ) -> AsyncIterator[ExecOutput | ExecExit]:
        """As the port says: writes the command, then its input, and ends with the last word's
        length."""
        await self._call("execute", workload_id)
        try:
            yield ExecOutput(" ".join(command).encode(), "stderr" if tty else "stdout")
            async for data in input:
                yield ExecOutput(data)
            yield ExecExit(len(command[-1]))
        finally:
            self._host.faults.journal.append(("execute_ended", workload_id))

    def _bind_ports(self, wanted: _Kept) -> None:
        for port in _ports(wanted.order):
            if port in self._host.foreign_ports:
                raise PortTakenError(f"host port {port} is taken by another program", None)
            for other in self._host._kept.values():
                is_bound = other.instance.state is AgentState.RUNNING and other is not wanted
                if is_bound and port in _ports(other.order):
                    name = other.order.workload_id
                    holder = name if other.owner == self._owner else ""
                    raise PortTakenError(f"host port {port} is taken by {name}", holder)

    async def _pull(self, order: Order) -> None:
        image = _image(order)
        if "slow" in image:
            await self._host.clock.sleep(SLOW)
        if "missing" in image:
            raise RuntimeFailedError(
                FailureCode.IMAGE_NOT_FOUND, f'image not found: manifest unknown for "{image}"'
            )

    async def _call(self, verb: str, subject: str = "") -> None:
        if not self._host.is_up:
            raise RuntimeUnavailableError("dial unix /run/memory.sock: no such file or directory")
        await self._host.faults.call(verb, subject)

    def _mine(self, workload_id: WorkloadId) -> _Kept | None:
        kept = self._host._kept.get((self.kind, workload_id))
        return kept if kept is not None and kept.owner == self._owner else None


def _image(order: Order) -> str:
    body = order.spec.body
    return body.image if isinstance(body, ContainerSpec) else ""


def _ports(order: Order) -> frozenset[int]:
    body = order.spec.body
    ports = body.ports if isinstance(body, ContainerSpec) else ()
    return frozenset(each.host_port for each in ports if each.host_port)


def _ended(instance: Instance, code: int, clock: Clock) -> Instance:
    return evolve(
        instance,
        state=AgentState.FAILED if code else AgentState.STOPPED,
        message=f"exited with code {code}" if code else "exited",
        exit_code=code,
        finished_at=clock.now(),
        metadata={"container.exit_code": str(code), "container.state": "exited"},
    )
