"""The adapters of one replica, opened in order and closed in the opposite one.

Decided here: which implementation stands behind which port for given settings. What each promises
is the port's business.
"""

from __future__ import annotations

import random
import socket
import uuid
from contextlib import AsyncExitStack

from persys_adapters.agent_grpc.agents import GrpcAgents
from persys_adapters.known_file import KnownFile
from persys_adapters.system_clock import SystemClock
from persys_core.control.config import SchedulerPorts
from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.ports.observer import Observer
from persys_server.copies import open_copies
from persys_server.settings import Settings, StoreKind
from persys_server.state import open_state
from persys_server.store_path import known_path

__all__ = ["instance_name", "open_ports", "ports_with_agents"]


async def open_ports(
    settings: Settings, observer: Observer, stack: AsyncExitStack
) -> SchedulerPorts:
    """Every port of a replica that speaks to real agents; ``stack`` closes what was opened."""
    agents = GrpcAgents(headers=observer.headers)
    stack.push_async_callback(agents.aclose)
    return await ports_with_agents(settings, observer, stack, agents, SystemClock())


async def ports_with_agents(
    settings: Settings, observer: Observer, stack: AsyncExitStack, agents: Agents, clock: Clock
) -> SchedulerPorts:
    """Every port of a replica that speaks to ``agents``."""
    state = await open_state(settings, clock, instance_name(), stack)
    events, telemetry = await open_copies(
        settings, clock, observer, stack, fallback=state.keep_outcome
    )
    return SchedulerPorts(
        store=state.store,
        liveness=state.liveness,
        membership=state.membership,
        agents=agents,
        events=events,
        telemetry=telemetry,
        clock=clock,
        rng=random.Random(random.SystemRandom().getrandbits(64)),
        observer=observer,
        memory=_cluster_memory(settings),
    )


def _cluster_memory(settings: Settings) -> ClusterMemory:
    """What this replica knows of its cluster; a store in memory is new at every start anyway."""
    if settings.store.kind is StoreKind.MEMORY:
        return MemoryClusterMemory()
    return KnownFile(known_path(settings))


def instance_name() -> str:
    """This process among all replicas: the machine's name and eight digits of its own."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
