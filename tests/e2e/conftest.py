"""Real servers for the tests over real processes."""

from tests.e2e.agents import dockerds, one_dockerd, two_dockerds
from tests.servers.etcd import etcd_alone, etcd_cluster, etcd_secured

__all__ = [
    "dockerds",
    "etcd_alone",
    "etcd_cluster",
    "etcd_secured",
    "one_dockerd",
    "two_dockerds",
]
