"""What is refused of an application before it is accepted."""

from __future__ import annotations

import pytest

from persys_agent.runtimes.compose.checks import check_application
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, WorkloadSpec
from persys_core.model.states import WorkloadType


def spec(memory_mb: int = 0, **metadata: str) -> WorkloadSpec:
    resources = Resources.of(memory_mb=memory_mb)
    body = ComposeSpec(inline_yaml="services: {a: {image: x}}")
    return WorkloadSpec(WorkloadType.COMPOSE, resources, body, metadata)


@pytest.mark.parametrize("impossible", [spec(5), spec(64, **{"persys.agent.pull_policy": "maybe"})])
def test_what_no_engine_takes_is_found_in_the_spec(impossible: WorkloadSpec) -> None:
    """Each is an invalid specification, which spends no attempt."""
    with pytest.raises(RuntimeFailedError) as refused:
        check_application(impossible)
    assert refused.value.code is FailureCode.INVALID_SPEC


@pytest.mark.parametrize("memory_mb", [0, 6])
def test_what_an_engine_takes_is_not_refused(memory_mb: int) -> None:
    """No limit at all, and the least one."""
    check_application(spec(memory_mb))
