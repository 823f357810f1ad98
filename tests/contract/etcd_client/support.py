"""What the tests of the client share: a client per test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from tests.servers.etcd import EtcdCluster

__all__ = ["client_of"]


@asynccontextmanager
async def client_of(cluster: EtcdCluster, **changed: Any) -> AsyncIterator[EtcdClient]:
    """A client of all members."""
    async with EtcdClient(EtcdConfig(cluster.endpoints, **changed)) as client:
        yield client
