"""The servers that these tests run against."""

from tests.servers.etcd import etcd_alone, etcd_cluster, etcd_secured, etcd_server

__all__ = ["etcd_alone", "etcd_cluster", "etcd_secured", "etcd_server"]
