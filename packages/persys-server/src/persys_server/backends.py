"""The adapters of one replica, opened in order and closed in the opposite one.

Decided here: which implementation stands behind which port for given settings. What each promises
is the port's business.
"""

from __future__ import annotations

import random
import socket
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from persys_adapters.agent_grpc.agents import GrpcAgents
from persys_adapters.known_file import KnownFile
from persys_adapters.records.codec import UnreadableRecordError
from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_adapters.sqlite.private import make_private_folder
from persys_adapters.system_clock import SystemClock
from persys_core.control.config import SchedulerPorts
from persys_core.memory.cluster_memory import MemoryClusterMemory
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.model.errors import PersysError
from persys_core.ports.agents import Agents
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_memory import ClusterMemory
from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.observer import Observer
from persys_server.copies import open_copies
from persys_server.settings import Settings, StoreKind
from persys_server.store_path import database_path

__all__ = [
    "DataDirError",
    "StoreNotAvailableError",
    "instance_name",
    "open_ports",
    "ports_with_agents",
]

_log = structlog.stdlib.get_logger("persys_server.backends")


class StoreNotAvailableError(PersysError):
    """The settings name a store that this release does not have."""


class DataDirError(PersysError):
    """The folder for what this replica keeps cannot be made; the text says what to do."""


async def open_ports(
    settings: Settings, observer: Observer, stack: AsyncExitStack
) -> SchedulerPorts:
    """Every port of a replica that speaks to real agents; ``stack`` closes what was opened."""
    agents = GrpcAgents()
    stack.push_async_callback(agents.aclose)
    return await ports_with_agents(settings, observer, stack, agents, SystemClock())


async def ports_with_agents(
    settings: Settings, observer: Observer, stack: AsyncExitStack, agents: Agents, clock: Clock
) -> SchedulerPorts:
    """Every port of a replica that speaks to ``agents``."""
    store = await _open_store(settings, stack)
    membership = MemoryMembership(
        ElectionHub(), store, clock, instance_name(), ttl=settings.leader_ttl
    )
    stack.callback(membership.close)
    events, telemetry = await open_copies(settings, clock, observer, stack)
    return SchedulerPorts(
        store=store,
        liveness=MemoryLiveness(clock, lease=settings.heartbeat_interval * 3),
        membership=membership,
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
    # Not beside the database under its name: who removes that must not remove this by the way.
    return KnownFile(Path(settings.data_dir) / f"known-{database_path(settings).stem}.json")


def instance_name() -> str:
    """This process among all replicas: the machine's name and eight digits of its own."""
    return f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"


async def _open_store(settings: Settings, stack: AsyncExitStack) -> ClusterStore:
    match settings.store.kind:
        case StoreKind.MEMORY:
            return MemoryClusterStore()
        case StoreKind.SQLITE:
            _make_data_dir(Path(settings.data_dir))
            store = await SqliteClusterStore.open(
                database_path(settings), on_unreadable=_log_unreadable
            )
            stack.push_async_callback(store.aclose)
            return store
        case StoreKind.ETCD:
            raise StoreNotAvailableError("PERSYS_STORE=etcd is not in this release")


def _make_data_dir(folder: Path) -> None:
    try:
        make_private_folder(folder)
    except OSError as error:
        raise DataDirError(
            f"PERSYS_DATA_DIR={folder} cannot be used ({error.strerror}): name a folder that this"
            " user may make and write to"
        ) from error


def _log_unreadable(place: str, error: UnreadableRecordError) -> None:
    _log.warning("a record cannot be read and is left out", record=place, reason=str(error))
