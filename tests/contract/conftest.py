"""The shipped contract suites show what differs, as the tests here do; servers are real."""

import pytest

from tests.servers.etcd import etcd_alone, etcd_cluster, etcd_secured, etcd_server

__all__ = ["etcd_alone", "etcd_cluster", "etcd_secured", "etcd_server"]

pytest.register_assert_rewrite("persys_core.testing")
