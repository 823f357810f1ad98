"""The rules for runtimes on the double that the agent's own tests use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from persys_agent.clock import SystemClock
from persys_agent.runtimes.port import Owner, Runtime
from persys_agent.testing import MemoryHost, MemoryRuntime
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import RuntimeBench
from persys_core.model.ids import WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import WorkloadType


class MemoryBench(RuntimeBench):
    def __init__(self) -> None:
        self.host = MemoryHost(SystemClock())
        self.runtime = MemoryRuntime(self.host, Owner("n1"))
        self.neighbour = MemoryRuntime(self.host, Owner("n2"))

    def lasting(self) -> WorkloadSpec:
        return _container("lasting")

    def ending(self, code: int) -> WorkloadSpec:
        return _container(f"exit{code}")

    def missing(self) -> WorkloadSpec:
        return _container("missing")

    async def again(self) -> Runtime:
        return MemoryRuntime(self.host, Owner("n1"))

    async def unreachable(self) -> Runtime:
        host = MemoryHost(SystemClock(), is_up=False)
        return MemoryRuntime(host, Owner("n1"))

    async def leftovers(self, workload_id: WorkloadId) -> Sequence[str]:
        return [workload_id] if self.host.instance(workload_id) else []

    async def aclose(self) -> None:
        pass


def _container(image: str) -> WorkloadSpec:
    return WorkloadSpec(WorkloadType.CONTAINER, Resources(), ContainerSpec(image))


class TestMemoryRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self) -> RuntimeBench:
        return MemoryBench()
