"""What the suites of the Runtime port are tried on: a technology, and workloads that it can run.

Decided here: what a technology has to bring so that its runtime can be held to the port, and how
the rules wait. Nothing here knows any technology.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Protocol

from persys_agent.runtimes.port import Instance, Interactive, Order, Runtime
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.spec import WorkloadSpec, spec_revision

__all__ = [
    "GRACE",
    "PATIENCE_SECONDS",
    "InteractiveRuntime",
    "RuntimeBench",
    "closing",
    "order_of",
    "removing",
    "until",
    "until_state",
]

PATIENCE_SECONDS = 60.0
GRACE = timedelta(seconds=1)
_POLL_SECONDS = 0.05
_NUMBERS = count(1)


class InteractiveRuntime(Runtime, Interactive, Protocol):
    """A runtime that also gives logs, commands and usage."""


class RuntimeBench(ABC):
    """One technology with room for two agents; one bench for one test.

    ``runtime`` is the agent's under test and ``neighbour`` that of another agent (another
    ``Owner``) on the same host. Runtimes that the bench hands out are closed by it.
    """

    runtime: Runtime
    neighbour: Runtime
    shares_names: bool = True
    """Whether two agents of one host get into each other's way with one workload id; where the
    technology's names hold the owner, each has its own."""
    has_exit_codes: bool = True
    """Whether the technology tells how a workload ended; machines only shut down."""

    @abstractmethod
    def lasting(self) -> WorkloadSpec:
        """What runs until it is stopped."""

    def stubborn(self) -> WorkloadSpec:
        """What does not end when it is asked to, where there is such a thing."""
        return self.lasting()

    @abstractmethod
    def ending(self, code: int) -> WorkloadSpec:
        """What ends by itself within two seconds, with that exit code where there are any."""

    @abstractmethod
    def missing(self) -> WorkloadSpec:
        """What cannot be created, since its image (its disk, its kernel) is not to be had."""

    @abstractmethod
    async def again(self) -> Runtime:
        """A new runtime of the owner of ``runtime``, as after the agent was restarted."""

    @abstractmethod
    async def unreachable(self) -> Runtime:
        """A runtime whose technology does not answer."""

    @abstractmethod
    async def leftovers(self, workload_id: WorkloadId) -> Sequence[str]:
        """Everything on the host that is still there because of this workload, by name."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close what was handed out."""

    def new_id(self, name: str = "w") -> WorkloadId:
        """An id that no other test of this process has."""
        return f"{name}-{next(_NUMBERS)}"


def order_of(workload_id: WorkloadId, spec: WorkloadSpec, revision: str = "") -> Order:
    """The order for ``spec``; its hash stands for the whole spec, whatever the revision says."""
    return Order(workload_id, revision or spec_revision(spec), spec_revision(spec), spec)


@asynccontextmanager
async def closing(bench: RuntimeBench) -> AsyncIterator[None]:
    """End the bench with the block."""
    try:
        yield
    finally:
        await bench.aclose()


@asynccontextmanager
async def removing(runtime: Runtime, *workload_ids: WorkloadId) -> AsyncIterator[None]:
    """Remove the workloads with all their data at the end of the block."""
    try:
        yield
    finally:
        for each in workload_ids:
            await runtime.remove(each, with_data=True)


async def until(
    runtime: Runtime, workload_id: WorkloadId, holds: Callable[[Instance], bool]
) -> Instance:
    """Wait until the instance is there and ``holds``."""
    seen: Instance | None = None
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                seen = await runtime.inspect(workload_id)
                if seen is not None and holds(seen):
                    return seen
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s; seen: {seen}") from None


async def until_state(runtime: Runtime, workload_id: WorkloadId, state: AgentState) -> Instance:
    """Wait until the instance is in ``state``."""
    return await until(runtime, workload_id, lambda instance: instance.state is state)
