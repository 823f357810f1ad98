"""Etcd behind the contract suites: every database is a prefix of its own on one server."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, end_of_prefix
from persys_adapters.etcd.cluster_store import EtcdClusterStore
from persys_core.ports.cluster_store import ClusterStore
from persys_core.testing.cluster_store_backend import ClusterStoreBackend

__all__ = ["EtcdBackend"]


class EtcdBackend(ClusterStoreBackend):
    """Stores under one random prefix, each with a client of its own.

    ``shared``: the server has other users, so its history is not compacted.
    """

    def __init__(self, config: EtcdConfig, *, shared: bool = False) -> None:
        self._config = config
        self._shared = shared
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
        if self._shared:
            pytest.skip("compacting would take the past from the other users of this etcd")
        await store.compact(await store.probe())

    def tidy(self) -> None:
        """Remove what was written."""

        async def remove() -> None:
            prefix = self.prefix.encode()
            async with EtcdClient(self._config) as client:
                await client.delete(prefix, end_of_prefix(prefix))

        asyncio.run(remove())
