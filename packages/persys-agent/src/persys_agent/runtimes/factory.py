"""``build_backends``: the runtimes and storage drivers that the settings switch on.

Decided here: which technology is which type of workload, and that each is imported only when it is
used. Whether it works is found out by its probe, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from typing import TypeAlias

from attrs import frozen

from persys_agent.commands import HostCommands
from persys_agent.engine.backends import Backends, SpecCheck
from persys_agent.runtimes.port import Interactive, Owner, Runtime
from persys_agent.settings import NodeSettings
from persys_agent.storage.drivers import storage_drivers
from persys_agent.storage.port import StorageDriver
from persys_agent.testing import MemoryDisks, MemoryHost, MemoryRuntime, MemoryStorage
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock

__all__ = ["Built", "RuntimeBuilder", "RuntimeChoice", "build_backends"]


class RuntimeChoice(StrEnum):
    """``MEMORY`` runs nothing: workloads are entries of a dict, for tests and for a first look."""

    AUTO = "auto"
    MEMORY = "memory"


@frozen
class Built:
    """A runtime; ``interactive`` is the same object where it also gives logs, usage and exec.
    ``check`` says which specs it can never run."""

    runtime: Runtime
    interactive: Interactive | None = None
    check: SpecCheck | None = None


RuntimeBuilder: TypeAlias = Callable[[NodeSettings, Owner], Built]


_SWITCHES: Mapping[WorkloadType, Callable[[NodeSettings], bool]] = {
    WorkloadType.CONTAINER: lambda settings: settings.docker_enabled,
    WorkloadType.COMPOSE: lambda settings: settings.compose_enabled,
    WorkloadType.VM: lambda settings: settings.vm_enabled,
    WorkloadType.MICROVM: lambda settings: settings.firecracker_enabled,
}


def build_backends(
    settings: NodeSettings,
    owner: Owner,
    clock: Clock,
    choice: RuntimeChoice = RuntimeChoice.AUTO,
) -> Backends:
    """What a node of these settings works with."""
    match choice:
        case RuntimeChoice.MEMORY:
            return _in_memory(owner, clock)
        case RuntimeChoice.AUTO:
            built = {
                kind: build(settings, owner)
                for kind, build in _builders().items()
                if _SWITCHES[kind](settings)
            }
            return _joined(built, storage_drivers(settings, HostCommands()))


def _builders() -> Mapping[WorkloadType, RuntimeBuilder]:
    """Loaded only for real nodes: their libraries take a while, and the others need none."""
    found: Mapping[WorkloadType, RuntimeBuilder]
    found = import_module("persys_agent.runtimes.builders").RUNTIMES
    return found


def _in_memory(owner: Owner, clock: Clock) -> Backends:
    host = MemoryHost(clock)
    runtimes = {kind: MemoryRuntime(host, owner, kind) for kind in WorkloadType}
    built = {kind: Built(runtime, runtime) for kind, runtime in runtimes.items()}
    local = MemoryStorage(MemoryDisks(clock))
    return _joined(built, {local.name: local})


def _joined(built: Mapping[WorkloadType, Built], drivers: Mapping[str, StorageDriver]) -> Backends:
    return Backends(
        runtimes={kind: each.runtime for kind, each in built.items()},
        interactive={
            kind: each.interactive for kind, each in built.items() if each.interactive is not None
        },
        drivers=drivers,
        checks={kind: each.check for kind, each in built.items() if each.check is not None},
    )
