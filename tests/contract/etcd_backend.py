"""Etcd behind the contract suites: every database is a prefix of its own on one server."""

from __future__ import annotations

import uuid

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_core.ports.cluster_store import ClusterStore
from persys_core.testing.cluster_store_backend import ClusterStoreBackend

__all__ = ["EtcdBackend"]


class EtcdBackend(ClusterStoreBackend):
    """Stores under one random prefix, each with a client of its own."""

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._clients: dict[int, EtcdClient] = {}
        self.prefix = f"/persys-contract-{uuid.uuid4().hex[:12]}"

    async def open(self) -> ClusterStore:
        client = EtcdClient(self._config)
        store = EtcdClusterStore(client, prefix=self.prefix)
        self._clients[id(store)] = client
        return store

    async def close(self, store: ClusterStore) -> None:
        await self._clients.pop(id(store)).aclose()

    async def forget_history(self, store: ClusterStore) -> None:
        await store.compact(await store.probe())
