"""What the agent can work with on this host: runtimes, and drivers of volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from attrs import field, frozen

from persys_agent.runtimes.port import Interactive, Runtime
from persys_agent.storage.port import StorageDriver
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.placement.demand import driver_name

__all__ = ["Backends", "SpecCheck"]

SpecCheck: TypeAlias = Callable[[WorkloadSpec], None]
"""Raises ``RuntimeFailedError`` for a spec that shows by itself that it can never run."""


@frozen
class Backends:
    """``runtimes`` are those that are switched on, whether they answer now or not.

    ``interactive`` are those of them that give logs, usage and commands. ``drivers`` by the name
    that specs use. ``checks`` are asked before a spec is accepted.
    """

    runtimes: Mapping[WorkloadType, Runtime] = field(factory=dict)
    interactive: Mapping[WorkloadType, Interactive] = field(factory=dict)
    drivers: Mapping[str, StorageDriver] = field(factory=dict)
    checks: Mapping[WorkloadType, SpecCheck] = field(factory=dict)

    def driver(self, name: str) -> StorageDriver | None:
        """The driver that a volume asks for, however it is spelled."""
        return self.drivers.get(driver_name(name))
