"""Compose applications on a real dockerd keep the contract of the Runtime port, and their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.testing.interactive import InteractiveBench, InteractiveSuite
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import RuntimeBench
from tests.contract.compose_bench import ComposeBench
from tests.servers.dockerd import Dockerd, compose_binary, run_dockerd

SETTINGS = ComposeSettings(removal_grace=timedelta(seconds=1))

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    compose_binary()
    with run_dockerd() as running:
        yield running


@pytest_asyncio.fixture
async def applications(daemon: Dockerd, tmp_path: Path) -> AsyncIterator[ComposeBench]:
    bench = ComposeBench(daemon, tmp_path / "projects", SETTINGS)
    yield bench
    await bench.aclose()


class TestComposeRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, daemon: Dockerd, tmp_path: Path) -> RuntimeBench:
        return ComposeBench(daemon, tmp_path / "projects", SETTINGS)


class TestInteractiveCompose(InteractiveSuite):
    @pytest.fixture
    def talk(self, daemon: Dockerd, tmp_path: Path) -> InteractiveBench:
        return ComposeBench(daemon, tmp_path / "projects", SETTINGS)
