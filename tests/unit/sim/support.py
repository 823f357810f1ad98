"""Short words for the tests of the simulated agent."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, ContainerSpec, SpecBody, WorkloadSpec
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.sim.agent import AgentModel, Reply
from persys_core.sim.agent_settings import AgentSettings, existing_agent

START = datetime(2026, 5, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def spec(
    image: str = "nginx",
    *,
    body: SpecBody | None = None,
    cpu: int = 100,
    restart: RestartPolicy = RestartPolicy.NO,
) -> WorkloadSpec:
    made = body or ContainerSpec(image, restart_policy=restart)
    kind = WorkloadType.COMPOSE if isinstance(made, ComposeSpec) else WorkloadType.CONTAINER
    return WorkloadSpec(kind, Resources.of(cpu_millicores=cpu, memory_mb=64), made)


def request(
    workload_id: str = "w1",
    image: str = "nginx",
    *,
    revision: str = "r1",
    desired: DesiredState = DesiredState.RUNNING,
    epoch: int = 0,
    of: WorkloadSpec | None = None,
) -> ApplyRequest:
    return ApplyRequest(workload_id, revision, desired, of or spec(image), epoch)


class Machine:
    """A model with a clock that is moved by hand."""

    def __init__(self, settings: AgentSettings | None = None, *, seed: int = 1) -> None:
        self.now = START
        self.model = AgentModel(settings or existing_agent("n1"), START, seed=seed)

    def wait(self, count: float) -> None:
        self.now += seconds(count)

    def apply(self, workload_id: str = "w1", image: str = "nginx", **wish: object) -> Reply:
        return self.model.apply(request(workload_id, image, **wish), self.now)  # type: ignore[arg-type]

    def delete(self, workload_id: str = "w1", *, volumes: bool = False) -> Reply:
        return self.model.delete(DeleteRequest(workload_id, 0, volumes), self.now)

    def status(self, workload_id: str = "w1") -> AgentReport | None:
        return self.model.status(workload_id, self.now)

    def state(self, workload_id: str = "w1") -> AgentState:
        report = self.status(workload_id)
        assert report is not None
        return report.state
