"""A ClusterStore on the key-value contract keeps its own contract; here the contract is a dict."""

import pytest

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.dict_kv import DictKv
from persys_core.ports.cluster_store import ClusterStore, Guarantee
from persys_core.testing.cluster_store import ClusterStoreContract
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_records import RecordContract

GUARANTEES = Guarantee.CAS | Guarantee.WATCH | Guarantee.SHARED


class DictBackend(ClusterStoreBackend):
    def __init__(self) -> None:
        self.kv = DictKv()

    async def open(self) -> ClusterStore:
        return KvClusterStore(self.kv, GUARANTEES)

    async def forget_history(self, store: ClusterStore) -> None:
        self.kv.compact()


class TestDictClusterStore(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self) -> ClusterStoreBackend:
        return DictBackend()
