"""Where the scheduler is and how to speak to it: flags first, then the environment.

Decided here: the variables, the defaults, and when a connection is encrypted. An address on this
machine is spoken to in plain text unless certificates are named; any other needs certificates or
``--insecure``, and nobody is switched to plain text by accident.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from persysctl.errors import UsageError

__all__ = ["DEFAULT_SERVER", "ConnectionFlags", "ServerSettings", "TlsFiles", "read_settings"]

DEFAULT_SERVER = "localhost:8085"
DEFAULT_PORT = 8085
_LOOPBACK = re.compile(r"(localhost|127(\.[0-9]+){3}|\[::1\]):[0-9]+\Z")
_HOST_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(:(?P<port>[0-9]{1,5}))?\Z")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: whom to trust, and who we are (both of the last two or neither)."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class ConnectionFlags:
    """What stood on the command line; ``None`` where nothing did."""

    server: str | None = None
    insecure: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    agent_server_name: str | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """``tls`` is ``None`` for a connection in plain text. Agents are spoken to as the scheduler is;
    ``agent_server_name`` empty: their certificates name the hosts that are dialled."""

    server: str
    tls: TlsFiles | None = None
    server_name: str = ""
    request_id: str = ""
    agent_server_name: str = ""

    def of_agent(self, endpoint: str) -> ServerSettings:
        """The settings for the agent at ``endpoint``."""
        return replace(self, server=endpoint, server_name=self.agent_server_name)


def read_settings(flags: ConnectionFlags, environ: Mapping[str, str], home: Path) -> ServerSettings:
    """Join flags, environment and the files in ``home/.persys``. Raises UsageError."""
    server = _address(flags.server or environ.get("PERSYS_SERVER") or DEFAULT_SERVER)
    named = TlsFiles(
        _path(flags.ca_file, environ, "PERSYS_CA_FILE"),
        _path(flags.cert_file, environ, "PERSYS_CERT_FILE"),
        _path(flags.key_file, environ, "PERSYS_KEY_FILE"),
    )
    return ServerSettings(
        server=server,
        tls=_tls(flags, environ, server, named, home),
        server_name=flags.server_name or environ.get("PERSYS_SERVER_NAME", ""),
        request_id=_request_id(flags.request_id),
        agent_server_name=flags.agent_server_name or environ.get("PERSYS_AGENT_SERVER_NAME", ""),
    )


def _request_id(given: str | None) -> str:
    """The id under which the scheduler logs this call."""
    if given is None:
        return f"ctl-{uuid.uuid4().hex[:16]}"
    if not re.fullmatch(r"[\x21-\x7e]{1,128}", given):
        raise UsageError("--request-id takes 1 to 128 visible ASCII characters without blanks")
    return given


def _address(text: str) -> str:
    if "://" in text:
        raise UsageError(f"--server takes HOST:PORT without a scheme, not {text!r}")
    match = _HOST_PORT.match(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 1 <= port <= 65535:
        raise UsageError(f"--server takes HOST:PORT, such as {DEFAULT_SERVER}, not {text!r}")
    return f"{match['host']}:{port}"


def _path(flag: str | None, environ: Mapping[str, str], variable: str) -> Path | None:
    text = flag or environ.get(variable)
    return Path(text).expanduser() if text else None


def _tls(
    flags: ConnectionFlags,
    environ: Mapping[str, str],
    server: str,
    named: TlsFiles,
    home: Path,
) -> TlsFiles | None:
    on_flags = flags.ca_file or flags.cert_file or flags.key_file
    if flags.insecure and on_flags:
        raise UsageError("--insecure and certificate files exclude each other; leave one out")
    if flags.insecure or (not on_flags and _is_true("PERSYS_INSECURE", environ)):
        return None
    if named != TlsFiles():
        return _checked(named)
    if _LOOPBACK.match(server):
        return None
    return _checked(_from_home(home, server))


def _is_true(variable: str, environ: Mapping[str, str]) -> bool:
    text = environ.get(variable, "").strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise UsageError(f"{variable}={text!r}: write true or false")
    return text in _TRUE


def _from_home(home: Path, server: str) -> TlsFiles:
    folder = home / ".persys"
    files = TlsFiles(folder / "ca.pem", folder / "persysctl.pem", folder / "persysctl-key.pem")
    if not (folder / "ca.pem").is_file():
        raise UsageError(
            f"{server} is another machine, and there is no certificate to speak to it: give"
            f" --ca-file, --cert-file and --key-file (or PERSYS_CA_FILE, PERSYS_CERT_FILE,"
            f" PERSYS_KEY_FILE), put ca.pem, persysctl.pem and persysctl-key.pem into {folder},"
            " or choose plain text with --insecure"
        )
    return files


def _checked(files: TlsFiles) -> TlsFiles:
    if (files.certificate is None) != (files.key is None):
        raise UsageError("--cert-file and --key-file belong together; give both or neither")
    for path in (files.ca, files.certificate, files.key):
        if path is not None and not path.is_file():
            raise UsageError(f"{path} is not a file")
    return files
