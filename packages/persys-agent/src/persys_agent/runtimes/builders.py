"""How each real runtime is made from the settings of a node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from persys_agent.runtimes.compose.runtime import ComposeRuntime
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.docker.runtime import DockerRuntime
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.factory import Built, RuntimeBuilder
from persys_agent.runtimes.port import Owner
from persys_agent.settings import NodeSettings
from persys_agent.settings.table import DEFAULT_COMPOSE
from persys_core.model.states import WorkloadType

__all__ = ["RUNTIMES"]


def _docker(settings: NodeSettings, owner: Owner) -> Built:
    runtime = DockerRuntime(
        settings.docker_endpoint,
        owner,
        DockerSettings(
            names=settings.container_names,
            pull_policy=settings.image_pull_policy,
            allow_privileged=settings.allow_privileged,
            registry_config=settings.docker_config,
            pull_timeout=settings.image_pull_timeout,
        ),
    )
    return Built(runtime, runtime)


def _compose(settings: NodeSettings, owner: Owner) -> Built:
    chosen = settings.compose_binary
    runtime = ComposeRuntime(
        settings.docker_endpoint,
        Path(settings.compose_root),
        owner,
        ComposeSettings(
            binary="" if chosen == DEFAULT_COMPOSE else chosen,
            allow_privileged=settings.allow_privileged,
            registry_config=settings.docker_config,
        ),
    )
    return Built(runtime, runtime)


RUNTIMES: Mapping[WorkloadType, RuntimeBuilder] = {
    WorkloadType.CONTAINER: _docker,
    WorkloadType.COMPOSE: _compose,
}
