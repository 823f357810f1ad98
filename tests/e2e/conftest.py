"""Real servers for the tests over real processes."""

from tests.servers.etcd import etcd_alone, etcd_cluster, etcd_secured

__all__ = ["etcd_alone", "etcd_cluster", "etcd_secured"]
