"""The embedded ClusterStore keeps the contract."""

from pathlib import Path

import pytest

from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_core.ports.cluster_store import ClusterStore
from persys_core.testing.cluster_store import ClusterStoreContract
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_records import RecordContract


class SqliteBackend(ClusterStoreBackend):
    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"

    async def open(self) -> ClusterStore:
        return await SqliteClusterStore.open(self.path)

    async def forget_history(self, store: ClusterStore) -> None:
        assert isinstance(store, SqliteClusterStore)
        await store.forget_history()


class TestSqliteClusterStore(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> ClusterStoreBackend:
        return SqliteBackend(tmp_path)
