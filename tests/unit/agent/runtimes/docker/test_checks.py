from __future__ import annotations

import pytest

from persys_agent.clock import SystemClock
from persys_agent.runtimes.compose.checks import check_application
from persys_agent.runtimes.docker.checks import check_container
from persys_agent.runtimes.factory import build_backends
from persys_agent.runtimes.port import FailureCode, Owner, RuntimeFailedError
from persys_agent.settings import load_settings
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, PortMapping, WorkloadSpec
from persys_core.model.states import WorkloadType


def spec(
    body: ContainerSpec, memory_mb: int = 0, metadata: dict[str, str] | None = None
) -> WorkloadSpec:
    resources = Resources.of(memory_mb=memory_mb)
    return WorkloadSpec(WorkloadType.CONTAINER, resources, body, metadata or {})


@pytest.mark.parametrize(
    "impossible",
    [
        spec(ContainerSpec("a"), memory_mb=5),
        spec(ContainerSpec("a"), metadata={"persys.agent.pull_policy": "maybe"}),
        spec(ContainerSpec("a"), metadata={"persys.agent.health.timeout": "-1"}),
        spec(ContainerSpec("a", env={"A=B": ""})),
        spec(ContainerSpec("a", ports=(PortMapping(0, 0, "tcp"),))),
        spec(ContainerSpec("a", ports=(PortMapping(0, 80, "smoke"),))),
    ],
)
def test_what_no_engine_takes_is_found_in_the_spec(impossible: WorkloadSpec) -> None:
    """Each is an invalid specification."""
    with pytest.raises(RuntimeFailedError) as refused:
        check_container(impossible)
    assert refused.value.code is FailureCode.INVALID_SPEC


@pytest.mark.parametrize("memory_mb", [0, 6])
def test_what_is_the_nodes_to_say_is_not_refused(memory_mb: int) -> None:
    """No limit at all and the least one are fine; whether it may be privileged is not asked yet."""
    check_container(spec(ContainerSpec("a", privileged=True), memory_mb=memory_mb))


def test_a_real_node_checks_containers_and_applications() -> None:
    """What is checked is what runs on Docker."""
    backends = build_backends(load_settings({}), Owner("n1"), SystemClock())
    assert backends.checks == {
        WorkloadType.CONTAINER: check_container,
        WorkloadType.COMPOSE: check_application,
    }
