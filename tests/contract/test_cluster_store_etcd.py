"""The ClusterStore on etcd keeps the contract: on one server, on three, behind TLS and users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from persys_adapters.etcd.client import EtcdConfig
from persys_core.testing.cluster_store import ClusterStoreContract
from persys_core.testing.cluster_store_backend import ClusterStoreBackend
from persys_core.testing.cluster_store_records import RecordContract
from tests.contract.etcd_backend import EtcdBackend


class TestEtcdClusterStore(ClusterStoreContract, RecordContract):
    """On one server, which may be the user's own: `--etcd`."""

    @pytest.fixture
    def backend(
        self, etcd_config: EtcdConfig, request: pytest.FixtureRequest
    ) -> Iterator[ClusterStoreBackend]:
        backend = EtcdBackend(etcd_config, shared=bool(request.config.getoption("--etcd")))
        yield backend
        backend.tidy()


class TestEtcdClusterStoreOnThree(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self, etcd_three: EtcdConfig) -> ClusterStoreBackend:
        return EtcdBackend(etcd_three)


class TestEtcdClusterStoreLocked(ClusterStoreContract, RecordContract):
    @pytest.fixture
    def backend(self, etcd_locked: EtcdConfig) -> ClusterStoreBackend:
        return EtcdBackend(etcd_locked)
