"""Containers on a real dockerd keep the contract of the Runtime port, and what Docker adds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.testing.interactive import InteractiveBench, InteractiveSuite
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import RuntimeBench
from tests.contract.docker_bench import DockerBench
from tests.servers.dockerd import Dockerd, run_dockerd

SETTINGS = DockerSettings(
    publish_address="127.0.0.1",
    replace_grace=timedelta(seconds=1),
    call_timeout=timedelta(seconds=20),
)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    with run_dockerd() as running:
        yield running


@pytest.fixture
def bench(daemon: Dockerd) -> DockerBench:
    return DockerBench(daemon, SETTINGS)


class TestDockerRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, daemon: Dockerd) -> RuntimeBench:
        return DockerBench(daemon, SETTINGS)


class TestInteractiveDocker(InteractiveSuite):
    @pytest.fixture
    def talk(self, daemon: Dockerd) -> InteractiveBench:
        return DockerBench(daemon, SETTINGS)
