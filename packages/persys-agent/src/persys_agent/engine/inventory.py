"""What the runtimes say: one question per runtime and look, each under a deadline.

Decided here: that silence is told apart from absence everywhere. ``Unanswered`` says that nothing
is known; nobody may take it for *not there*.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from attrs import frozen

from persys_agent.engine.backends import Backends
from persys_agent.runtimes.port import (
    Instance,
    Runtime,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_core.model.ids import WorkloadId
from persys_core.model.states import WorkloadType

__all__ = ["Inventory", "Look", "Seen", "Unanswered", "server_of"]

_SERVERS: Mapping[WorkloadType, str] = {
    WorkloadType.CONTAINER: "dockerd",
    WorkloadType.COMPOSE: "dockerd",
    WorkloadType.VM: "libvirtd",
    WorkloadType.MICROVM: "Firecracker",
}


@frozen
class Unanswered:
    """The runtime did not answer; ``cause`` is its own words."""

    cause: str


Seen: TypeAlias = Instance | Unanswered | None
"""One workload in its runtime; ``None`` means that the runtime said that it has none."""


def server_of(kind: WorkloadType) -> str:
    """Who is meant by a runtime that does not answer: Compose, say, has no server of its own."""
    return f"the runtime for {kind} ({_SERVERS[kind]})"


@frozen
class Look:
    """Everything that was seen at one moment."""

    found: Mapping[WorkloadType, Mapping[WorkloadId, Instance] | Unanswered]

    def of(self, kind: WorkloadType, workload_id: WorkloadId) -> Seen:
        """One workload; a runtime that this node has not, or has switched off, is silent."""
        instances = self.found.get(kind)
        if instances is None:
            return Unanswered(f"this node has no runtime for {kind}")
        return instances if isinstance(instances, Unanswered) else instances.get(workload_id)

    def instances(self) -> Sequence[tuple[WorkloadType, Instance]]:
        """Every instance of the runtimes that answered."""
        return [
            (kind, instance)
            for kind, instances in self.found.items()
            if not isinstance(instances, Unanswered)
            for instance in instances.values()
        ]


class Inventory:
    """``deadline``: how long a runtime may take for one answer. ``hear`` is told of each look at
    all of a runtime's instances whether it answered."""

    def __init__(
        self,
        backends: Backends,
        deadline: timedelta = timedelta(seconds=10),
        hear: Callable[[WorkloadType, bool], None] = lambda _, __: None,
    ) -> None:
        self._runtimes = backends.runtimes
        self._longest = deadline.total_seconds()
        self._deadline = self._longest
        self._hear = hear

    def answer_within(self, deadline: timedelta) -> None:
        """A runtime that takes longer than this counts as silent, from now on; at most as long as
        it may take at all."""
        self._deadline = min(self._longest, deadline.total_seconds())

    async def look(self, kinds: frozenset[WorkloadType] | None = None) -> Look:
        """Ask all runtimes (or those of ``kinds``) at once."""
        wanted = [kind for kind in self._runtimes if kinds is None or kind in kinds]
        answers = await asyncio.gather(*(self._instances(self._runtimes[kind]) for kind in wanted))
        for kind, answer in zip(wanted, answers, strict=True):
            self._hear(kind, not isinstance(answer, Unanswered))
        return Look(dict(zip(wanted, answers, strict=True)))

    async def see(self, kind: WorkloadType, workload_id: WorkloadId) -> Seen:
        """Ask one runtime for one workload."""
        runtime = self._runtimes.get(kind)
        if runtime is None:
            return Unanswered(f"this node has no runtime for {kind}")
        try:
            async with asyncio.timeout(self._deadline):
                return await runtime.inspect(workload_id)
        except (RuntimeFailedError, RuntimeUnavailableError, TimeoutError) as error:
            return Unanswered(str(error) or "no answer in time")

    async def _instances(self, runtime: Runtime) -> Mapping[WorkloadId, Instance] | Unanswered:
        try:
            async with asyncio.timeout(self._deadline):
                return {each.workload_id: each for each in await runtime.instances()}
        except (RuntimeFailedError, RuntimeUnavailableError, TimeoutError) as error:
            return Unanswered(str(error) or "no answer in time")
