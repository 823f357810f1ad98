"""The shipped contract suites show what differs, as the tests here do; servers are real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from persys_adapters.etcd.client import EtcdConfig, TlsFiles
from tests.servers.etcd import (
    EtcdCluster,
    etcd_alone,
    etcd_cluster,
    etcd_secured,
    run_cluster,
    run_secured,
    run_single,
)

__all__ = ["etcd_alone", "etcd_cluster", "etcd_secured"]

pytest.register_assert_rewrite("persys_core.testing", "persys_agent.testing")

_USER = ("persys", "persys-secret", "/")


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """One server for all tests of a worker: use a prefix of your own."""
    with run_single(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def etcd_config(request: pytest.FixtureRequest) -> EtcdConfig:
    """How the server is spoken to that `--etcd` names, or else one that is started here."""
    own: str = request.config.getoption("--etcd")
    if own:
        return EtcdConfig(tuple(own.split(",")))
    cluster: EtcdCluster = request.getfixturevalue("etcd_server")
    return EtcdConfig(cluster.endpoints)


@pytest.fixture(scope="session")
def etcd_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdConfig]:
    """Three members."""
    with run_cluster(tmp_path_factory.mktemp("etcd3")) as cluster:
        yield EtcdConfig(cluster.endpoints)


@pytest.fixture(scope="session")
def etcd_locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdConfig]:
    """A server that wants a client certificate and a user; tokens end within the run."""
    folder = tmp_path_factory.mktemp("etcd-locked")
    with run_secured(folder, token_seconds=3, users=[_USER]) as cluster:
        assert cluster.tls is not None
        files = cluster.tls
        tls = TlsFiles(str(files.authority), str(files.client_certificate), str(files.client_key))
        yield EtcdConfig(cluster.endpoints, user=_USER[0], password=_USER[1], tls=tls)
