"""Where the scheduler is, and when the connection is encrypted."""

from __future__ import annotations

from pathlib import Path

import pytest

from persysctl.errors import UsageError
from persysctl.settings import ConnectionFlags, TlsFiles, read_settings


def test_defaults(tmp_path: Path) -> None:
    """Without anything it is this machine, in plain text, with a request id of our own."""
    settings = read_settings(ConnectionFlags(), {}, tmp_path)
    assert (settings.server, settings.tls) == ("localhost:8085", None)
    assert settings.request_id.startswith("ctl-")


def test_flags_come_before_the_environment(tmp_path: Path) -> None:
    """A flag wins over its variable."""
    environ = {"PERSYS_SERVER": "127.0.0.1:1"}
    flags = ConnectionFlags(server="127.0.0.1:2")
    assert read_settings(flags, environ, tmp_path).server == "127.0.0.1:2"
    assert read_settings(ConnectionFlags(), environ, tmp_path).server == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("given", "server"),
    [("localhost", "localhost:8085"), ("[::1]:99", "[::1]:99"), ("127.0.0.9", "127.0.0.9:8085")],
)
def test_addresses(tmp_path: Path, given: str, server: str) -> None:
    """The port may be left out; IPv6 addresses stand in brackets."""
    settings = read_settings(ConnectionFlags(server=given), {}, tmp_path)
    assert (settings.server, settings.tls) == (server, None)


@pytest.mark.parametrize("given", ["https://a:1", "a:b", "a:0", "a:70000", "a b:1", "::1", "a/b:1"])
def test_wrong_addresses(tmp_path: Path, given: str) -> None:
    """What is not HOST:PORT is refused before anything is tried."""
    with pytest.raises(UsageError, match="HOST:PORT"):
        read_settings(ConnectionFlags(server=given, insecure=True), {}, tmp_path)


def test_another_machine_is_never_spoken_to_in_plain_text_by_accident(tmp_path: Path) -> None:
    """Without certificates and --insecure a remote address is refused, with the ways out."""
    with pytest.raises(UsageError, match="--insecure"):
        read_settings(ConnectionFlags(server="far.example:1"), {}, tmp_path)
    settings = read_settings(ConnectionFlags(server="far.example:1", insecure=True), {}, tmp_path)
    assert settings.tls is None


@pytest.mark.parametrize("host", ["localhost.example.org", "127.0.0.1.example.org", "0.0.0.0"])
def test_only_loopback_is_this_machine(tmp_path: Path, host: str) -> None:
    """A name that merely begins like this machine's is another machine."""
    with pytest.raises(UsageError, match="--insecure"):
        read_settings(ConnectionFlags(server=host), {}, tmp_path)


def test_certificates_from_home(tmp_path: Path) -> None:
    """The files under ~/.persys are taken for other machines."""
    folder = tmp_path / ".persys"
    folder.mkdir()
    names = ("ca.pem", "persysctl.pem", "persysctl-key.pem")
    for name in names:
        (folder / name).write_text("pem")
    settings = read_settings(ConnectionFlags(server="far.example"), {}, tmp_path)
    assert settings.tls == TlsFiles(*(folder / name for name in names))


def test_named_certificates_encrypt_this_machine_too(tmp_path: Path) -> None:
    """Who names certificates wants them used, whatever the address."""
    pem = tmp_path / "ca.pem"
    pem.write_text("pem")
    by_flag = read_settings(ConnectionFlags(ca_file=str(pem)), {}, tmp_path)
    by_variable = read_settings(ConnectionFlags(), {"PERSYS_CA_FILE": str(pem)}, tmp_path)
    assert by_flag.tls == by_variable.tls == TlsFiles(ca=pem)


@pytest.mark.parametrize(
    ("flags", "environ", "part"),
    [
        (ConnectionFlags(insecure=True, ca_file="x"), {}, "exclude each other"),
        (ConnectionFlags(cert_file="/nonexistent"), {}, "belong together"),
        (ConnectionFlags(ca_file="/nonexistent"), {}, "is not a file"),
        (ConnectionFlags(), {"PERSYS_INSECURE": "maybe"}, "PERSYS_INSECURE='maybe'"),
    ],
)
def test_wrong_security(
    tmp_path: Path, flags: ConnectionFlags, environ: dict[str, str], part: str
) -> None:
    """Contradictions, half pairs and missing files are told before anything is tried."""
    with pytest.raises(UsageError) as caught:
        read_settings(flags, environ, tmp_path)
    assert part in str(caught.value)
