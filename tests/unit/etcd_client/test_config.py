"""What a client may be told."""

from pathlib import Path

import pytest

from persys_adapters.etcd.client import EtcdConfig, TlsFiles
from persys_adapters.etcd.client.tls import FileCredentials
from tests.servers.etcd import make_tls


def test_endpoints_are_host_and_port() -> None:
    """Schemes and slashes are dropped, doubles too; the order stays."""
    config = EtcdConfig(("http://a:1", "b:2", "http://a:1/"))
    assert config.addresses == ("a:1", "b:2")
    assert not config.secure
    assert EtcdConfig(("https://a:1",)).secure


@pytest.mark.parametrize("endpoint", ["", "host", ":2379", "host:", "host:x", "host:0", "h:70000"])
def test_other_endpoints_are_refused(endpoint: str) -> None:
    """A wrong endpoint is named, with what is accepted."""
    with pytest.raises(ValueError, match="expected host:port"):
        EtcdConfig((endpoint,))


def test_half_a_configuration_is_refused() -> None:
    """No endpoint, a password without a user, half a key pair, TLS files for plain endpoints."""
    with pytest.raises(ValueError, match="no etcd endpoint"):
        EtcdConfig(())
    with pytest.raises(ValueError, match="but no user"):
        EtcdConfig(("a:1",), password="p")
    with pytest.raises(ValueError, match="together"):
        TlsFiles(certificate="c.pem")
    with pytest.raises(ValueError, match="without TLS"):
        EtcdConfig(("http://a:1",), tls=TlsFiles("ca.pem"))


def test_the_password_is_not_shown() -> None:
    """Neither `repr` nor `str` tells the password."""
    config = EtcdConfig(("a:1",), user="u", password="very-secret")
    assert "very-secret" not in f"{config!r} {config}"


class Clock:
    """Time as the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_replaced_files_are_noticed_whole(tmp_path: Path) -> None:
    """New files count when they fit together, at most once per interval; half a pair never does."""
    old, new = make_tls(tmp_path / "old"), make_tls(tmp_path / "new")
    files = TlsFiles(str(old.authority), str(old.client_certificate), str(old.client_key))
    clock = Clock()
    credentials = FileCredentials(files, 5.0, clock)
    first = credentials.current
    clock.now = 6.0
    assert not credentials.renewed()
    old.client_certificate.write_bytes(new.client_certificate.read_bytes())
    clock.now = 7.0
    assert not credentials.renewed(), "it is not time to look"
    clock.now = 12.0
    assert not credentials.renewed(), "the key is not the certificate's"
    assert credentials.current is first
    old.client_key.write_bytes(new.client_key.read_bytes())
    clock.now = 18.0
    assert credentials.renewed()
    assert credentials.current is not first


def test_missing_and_broken_files_are_named(tmp_path: Path) -> None:
    """A file that is not there, or holds something else, is named at once."""
    with pytest.raises(ValueError, match=r"gone\.pem"):
        FileCredentials(TlsFiles(str(tmp_path / "gone.pem")), 5.0, Clock())
    (tmp_path / "text.pem").write_text("hello")
    with pytest.raises(ValueError, match="expected PEM"):
        FileCredentials(TlsFiles(str(tmp_path / "text.pem")), 5.0, Clock())
