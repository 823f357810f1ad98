"""Where desired state lives: the store, the node leases and the elections that belong together.

Decided here: which three stand behind which ``PERSYS_STORE``. A store of one process has its
leases in that process's memory; etcd holds them for all replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import structlog
from attrs import frozen

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, TlsFiles
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_adapters.etcd.liveness import EtcdLiveness
from persys_adapters.etcd.membership import EtcdMembership
from persys_adapters.etcd.reconciliations import EtcdReconciliations
from persys_adapters.records.codec import UnreadableRecordError
from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_adapters.sqlite.private import make_private_folder
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.model.errors import PersysError
from persys_core.model.ids import WorkloadId
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.liveness import Liveness
from persys_core.ports.membership import Membership
from persys_server.settings import Settings, StoreKind
from persys_server.store_path import database_path

__all__ = [
    "DataDirError",
    "EtcdSettingsError",
    "State",
    "etcd_config",
    "make_data_dir",
    "open_state",
]

_LEASE_INTERVALS = 3
_ATTEMPT = timedelta(seconds=0.75)
"""So long one member of etcd is waited for. While a leader hangs several attempts are made in vain,
one of them at the hung one, and a request is not to take three seconds for it."""
_log = structlog.stdlib.get_logger("persys_server.state")


class EtcdSettingsError(PersysError):
    """The ``ETCD_`` settings cannot be used: a file that cannot be read, no endpoint."""


class DataDirError(PersysError):
    """The folder for what this replica keeps cannot be made; the text says what to do."""


@frozen
class State:
    """The ports that share one backend."""

    store: ClusterStore
    liveness: Liveness
    membership: Membership
    keep_outcome: Callable[[WorkloadId, Mapping[str, str]], None] | None = None
    """Takes reconcile outcomes that Redis cannot take; only etcd does."""


async def open_state(
    settings: Settings, clock: Clock, instance_id: str, stack: AsyncExitStack
) -> State:
    """Open what ``PERSYS_STORE`` names; ``stack`` closes it again."""
    match settings.store.kind:
        case StoreKind.MEMORY:
            return _alone(MemoryClusterStore(), settings, clock, instance_id, stack)
        case StoreKind.SQLITE:
            make_data_dir(Path(settings.data_dir))
            store = await SqliteClusterStore.open(
                database_path(settings), on_unreadable=_log_unreadable
            )
            stack.push_async_callback(store.aclose)
            return _alone(store, settings, clock, instance_id, stack)
        case StoreKind.ETCD:
            make_data_dir(Path(settings.data_dir))
            return await _shared(settings, clock, instance_id, stack)


def etcd_config(settings: Settings) -> EtcdConfig:
    """How etcd is spoken to."""
    tls = None
    if settings.etcd_tls_ca:
        tls = TlsFiles(settings.etcd_tls_ca, settings.etcd_tls_cert, settings.etcd_tls_key)
    return EtcdConfig(
        endpoints=settings.etcd_endpoints,
        user=settings.etcd_username,
        password=settings.etcd_password,
        tls=tls,
        attempt_timeout=_ATTEMPT,
    )


def make_data_dir(folder: Path) -> None:
    """Make the folder, for this user alone. DataDirError."""
    try:
        make_private_folder(folder)
    except OSError as error:
        raise DataDirError(
            f"PERSYS_DATA_DIR={folder} cannot be used ({error.strerror}): name a folder that this"
            " user may make and write to"
        ) from error


def _alone(
    store: ClusterStore, settings: Settings, clock: Clock, instance_id: str, stack: AsyncExitStack
) -> State:
    hub = ElectionHub(store)
    stack.callback(hub.close)
    membership = MemoryMembership(hub, store, clock, instance_id, ttl=settings.leader_ttl)
    stack.callback(membership.close)
    return State(store, MemoryLiveness(clock, lease=_node_lease(settings)), membership)


async def _shared(
    settings: Settings, clock: Clock, instance_id: str, stack: AsyncExitStack
) -> State:
    try:
        client = EtcdClient(etcd_config(settings))
    except ValueError as error:
        raise EtcdSettingsError(f"etcd cannot be spoken to as the settings say: {error}") from error
    stack.push_async_callback(client.aclose)
    liveness = EtcdLiveness(
        client, clock, lease=_node_lease(settings), interval=settings.heartbeat_interval
    )
    liveness.start()
    stack.push_async_callback(liveness.aclose)
    membership = EtcdMembership(client, clock, instance_id, ttl=settings.leader_ttl)
    stack.push_async_callback(membership.aclose)
    outcomes = EtcdReconciliations(client, ttl=settings.redis_reconcile_ttl)
    outcomes.start()
    stack.push_async_callback(outcomes.aclose)
    store = EtcdClusterStore(client, on_unreadable=_log_unreadable)
    return State(store, liveness, membership, outcomes.take)


def _node_lease(settings: Settings) -> timedelta:
    return settings.heartbeat_interval * _LEASE_INTERVALS


def _log_unreadable(place: str, error: UnreadableRecordError) -> None:
    _log.warning("a record cannot be read and is left out", record=place, reason=str(error))
