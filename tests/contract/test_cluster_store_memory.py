"""The in-memory ClusterStore keeps the contract."""

import pytest

from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.ports.cluster_store import ClusterStore
from persys_core.testing.cluster_store import ClusterStoreContract
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_records import RecordContract


class MemoryBackend(ClusterStoreBackend):
    def __init__(self) -> None:
        self.shared = MemoryClusterBackend()

    async def open(self) -> ClusterStore:
        return MemoryClusterStore(self.shared)

    async def forget_history(self, store: ClusterStore) -> None:
        self.shared.compact()


class TestMemoryClusterStore(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self) -> ClusterStoreBackend:
        return MemoryBackend()
