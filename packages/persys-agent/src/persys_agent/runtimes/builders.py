"""How each real runtime is made from the settings of a node."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from persys_agent.runtimes.compose.checks import check_application
from persys_agent.runtimes.compose.runtime import ComposeRuntime
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.docker.checks import check_container
from persys_agent.runtimes.docker.runtime import DockerRuntime
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.factory import Built, RuntimeBuilder
from persys_agent.runtimes.microvm.runtime import FirecrackerRuntime
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import Owner
from persys_agent.runtimes.vm.runtime import LibvirtRuntime
from persys_agent.runtimes.vm.settings import VmSettings
from persys_agent.settings import NodeSettings
from persys_agent.settings.table import DEFAULT_COMPOSE
from persys_core.model.states import WorkloadType

__all__ = ["RUNTIMES"]

_LIBVIRT_IMAGES = Path("/var/lib/libvirt/images")
"""Where schedulers put disks for which a spec names no path."""


def _docker(settings: NodeSettings, owner: Owner) -> Built:
    runtime = DockerRuntime(settings.docker_endpoint, owner, _docker_settings(settings))
    return Built(runtime, runtime, check_container)


def _docker_settings(settings: NodeSettings) -> DockerSettings:
    return DockerSettings(
        names=settings.container_names,
        pull_policy=settings.image_pull_policy,
        allow_privileged=settings.allow_privileged,
        registry_config=settings.docker_config,
        pull_timeout=settings.image_pull_timeout,
    )


def _compose(settings: NodeSettings, owner: Owner) -> Built:
    chosen = settings.compose_binary
    runtime = ComposeRuntime(
        settings.docker_endpoint,
        Path(settings.compose_root),
        owner,
        ComposeSettings(
            binary="" if chosen == DEFAULT_COMPOSE else chosen,
            allow_privileged=settings.allow_privileged,
            images=_docker_settings(settings),
            private=(Path(settings.agent_data_dir),),
        ),
    )
    return Built(runtime, runtime, check_application)


def _libvirt(settings: NodeSettings, owner: Owner) -> Built:
    runtime = LibvirtRuntime(
        settings.libvirt_uri,
        owner,
        VmSettings(
            images_root=Path(settings.vm_images_root),
            state_dir=Path(settings.agent_data_dir) / "vm",
            disk_roots=(_LIBVIRT_IMAGES,),
            accelerator=settings.vm_accelerator,
        ),
    )
    return Built(runtime, runtime)


def _firecracker(settings: NodeSettings, owner: Owner) -> Built:
    binary = shutil.which(settings.firecracker_binary) or settings.firecracker_binary
    runtime = FirecrackerRuntime(
        owner,
        MicroVmSettings(
            binary=Path(binary),
            images_root=Path(settings.vm_images_root),
            state_dir=Path(settings.firecracker_root),
            kernel=settings.firecracker_kernel,
        ),
    )
    return Built(runtime, runtime)


RUNTIMES: Mapping[WorkloadType, RuntimeBuilder] = {
    WorkloadType.CONTAINER: _docker,
    WorkloadType.COMPOSE: _compose,
    WorkloadType.VM: _libvirt,
    WorkloadType.MICROVM: _firecracker,
}
