"""The nodes of a demonstration, whatever runs their workloads.

Decided here: which nodes there are for what was prepared. Real ones are loaded only where they are
used.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Protocol

from attrs import frozen

from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_server.dev.machines import PREFIX, add_machine_for_vms, add_machines
from persys_server.dev.runtimes import Prepared

__all__ = ["Nodes", "open_nodes"]


class _RealNodes(Protocol):
    async def kill(self, node_id: str) -> None: ...


@frozen
class Nodes:
    """``count`` of them; ``kill`` switches one off by its name."""

    count: int
    kill: Callable[[str], Awaitable[object]]


@asynccontextmanager
async def open_nodes(
    ready: Prepared, scheduler: str, folder: Path, count: int
) -> AsyncIterator[Nodes]:
    """So many nodes, and one more for what they cannot run; all are gone with the block."""
    options = FleetOptions(nodes=0, prefix=PREFIX, scheduler=scheduler)
    async with AsyncExitStack() as stack:
        if not ready.endpoint:
            simulated = await stack.enter_async_context(SimulatedFleet(options))
            await add_machines(simulated, count)
            yield Nodes(count, simulated.kill)
            return
        place = tempfile.TemporaryDirectory(prefix="nodes-", dir=folder, ignore_cleanup_errors=True)
        states = Path(stack.enter_context(place))
        real = await stack.enter_async_context(_real(ready.endpoint, scheduler, states, count))
        if ready.needs_model:
            simulated = await stack.enter_async_context(SimulatedFleet(options))
            await add_machine_for_vms(simulated)
        yield Nodes(count + ready.needs_model, real.kill)


def _real(
    endpoint: str, scheduler: str, folder: Path, count: int
) -> AbstractAsyncContextManager[_RealNodes]:
    opened: AbstractAsyncContextManager[_RealNodes]
    opened = import_module("persys_server.dev.docker").real_nodes(
        endpoint, scheduler, folder, count
    )
    return opened
