"""What this node can do now, as each technology answers when it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen

from persys_agent.engine.backends import Backends
from persys_agent.runtimes.port import Capability
from persys_core.model.node import StoragePool
from persys_core.model.states import WorkloadType

__all__ = ["Capabilities", "detect_capabilities"]

_DEADLINE_SECONDS = 10.0


class _Probed(Protocol):
    async def probe(self) -> Capability: ...


@frozen
class Capabilities:
    """What was found, per runtime and per storage driver."""

    runtimes: Mapping[WorkloadType, Capability] = field(factory=dict)
    drivers: Mapping[str, Capability] = field(factory=dict)
    pools: tuple[StoragePool, ...] = ()

    @property
    def workload_types(self) -> frozenset[WorkloadType]:
        """The types of which the runtime works."""
        return frozenset(kind for kind, found in self.runtimes.items() if found.is_available)

    @property
    def storage_drivers(self) -> frozenset[str]:
        """The drivers that work."""
        return frozenset(name for name, found in self.drivers.items() if found.is_available)

    def promises_as(self, other: Capabilities) -> bool:
        """Whether a scheduler would be told the same."""
        return (self.workload_types, self.storage_drivers, self.pools) == (
            other.workload_types,
            other.storage_drivers,
            other.pools,
        )


async def detect_capabilities(backends: Backends) -> Capabilities:
    """Ask everything at once. Raises nothing; what does not answer is not there."""
    runtimes = list(backends.runtimes.items())
    drivers = list(backends.drivers.items())
    probed: list[_Probed] = [*(each for _, each in runtimes), *(each for _, each in drivers)]
    found = await asyncio.gather(*map(_probe, probed))
    by_kind = {kind: answer for (kind, _), answer in zip(runtimes, found, strict=False)}
    answers = found[len(runtimes) :]
    by_name = {name: answer for (name, _), answer in zip(drivers, answers, strict=True)}
    pools = [
        pool
        for name, driver in drivers
        if by_name[name].is_available
        for pool in await driver.pools()
    ]
    return Capabilities(by_kind, by_name, tuple(pools))


async def _probe(probed: _Probed) -> Capability:
    try:
        async with asyncio.timeout(_DEADLINE_SECONDS):
            return await probed.probe()
    except TimeoutError:
        return Capability(False, f"no answer within {_DEADLINE_SECONDS:g} s")
