"""The ClusterStore on etcd keeps the contract."""

from __future__ import annotations

import pytest

from persys_adapters.etcd.client import EtcdConfig
from persys_core.testing.cluster_store import ClusterStoreContract
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_records import RecordContract
from tests.contract.etcd_backend import EtcdBackend
from tests.servers.etcd import EtcdCluster


class TestEtcdClusterStore(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self, etcd_server: EtcdCluster) -> ClusterStoreBackend:
        return EtcdBackend(EtcdConfig(etcd_server.endpoints))
