"""TLS from files: read, checked, and read again when they change, without a restart.

Decided here: what makes three files usable (all readable, PEM, the key belongs to the certificate)
and when they are looked at: at every new connection, by their modification times. Files that became
unusable change nothing: the last good ones stay in use, and ``problem`` says why. A certificate's
end is the doctor's concern; the peer refuses it anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import grpc
from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)

from persys_agent.settings.table import NodeSettings
from persys_core.model.errors import PersysError
from persys_core.model.secrets import MASK

__all__ = [
    "CertificateError",
    "Stamps",
    "TlsFilesOnDisk",
    "TlsMaterial",
    "TlsPaths",
    "changed",
    "channel_credentials",
    "channel_options",
    "read_material",
    "server_credentials",
    "stamps_of",
    "tls_paths",
]


class CertificateError(PersysError):
    """TLS files that cannot be used; the text names the file, its setting, and what to do."""


@frozen
class TlsPaths:
    """Paths of PEM files: the trust bundle, and this agent's certificate chain and key."""

    ca: str
    cert: str
    key: str


@frozen
class TlsMaterial:
    """What the files hold, checked. ``ends_at``: when the certificate ends."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=lambda _: repr(MASK))
    ends_at: datetime


@frozen
class Stamps:
    """What tells one state of the files from another: modification time in ns, inode and size of
    each, ``None`` for one that is not there."""

    files: tuple[tuple[int, int, int] | None, ...]


def tls_paths(settings: NodeSettings) -> TlsPaths:
    """The files that the settings name."""
    return TlsPaths(settings.tls_ca_path, settings.tls_cert_path, settings.tls_key_path)


def changed(before: Stamps, now: Stamps) -> bool:
    """Whether the files are worth reading again. While one of them is absent (they are being
    replaced) they are not."""
    return None not in now.files and before != now


def stamps_of(paths: TlsPaths) -> Stamps:
    """How the files are now."""
    return Stamps(tuple(map(_stamp, (paths.ca, paths.cert, paths.key))))


def read_material(paths: TlsPaths) -> TlsMaterial:
    """The files' content. Raises ``CertificateError``."""
    ca = _content(paths.ca, "tls_ca_path")
    cert = _content(paths.cert, "tls_cert_path")
    key = _content(paths.key, "tls_key_path")
    _certificates(ca, paths.ca, "tls_ca_path")
    leaf = _certificates(cert, paths.cert, "tls_cert_path")[0]
    if _public_key_of(key, paths.key) != _public_bytes(leaf):
        raise CertificateError(
            f"tls_key_path: {paths.key} is not the key of the certificate {paths.cert}; name the"
            " two that were issued together"
        )
    return TlsMaterial(ca, cert, key, leaf.not_valid_after_utc)


class TlsFilesOnDisk:
    """The newest good content of three files. Used by several threads: gRPC asks from its own."""

    def __init__(self, paths: TlsPaths, *, on_problem: Callable[[str], None] | None = None) -> None:
        """Raises ``CertificateError`` where the files cannot be used from the start.

        ``on_problem`` is told once of each state of the files that cannot be used.
        """
        self._paths = paths
        self._on_problem = on_problem or (lambda _: None)
        self._lock = threading.Lock()
        self._seen = stamps_of(paths)
        self._material = read_material(paths)
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why the files as they are now are not in use; empty while they are."""
        return self._problem

    def current(self) -> TlsMaterial:
        """The newest good content; the same object until there is another."""
        with self._lock:
            now = stamps_of(self._paths)
            if changed(self._seen, now):
                self._seen = now
                self._read_again()
            return self._material

    def _read_again(self) -> None:
        try:
            self._material = read_material(self._paths)
            self._problem = ""
        except CertificateError as error:
            self._problem = str(error)
            self._on_problem(self._problem)


def server_credentials(files: TlsFilesOnDisk) -> grpc.ServerCredentials:
    """What the agent serves with: a certificate of the trust bundle is required of callers. The
    files are looked at before every handshake."""
    return grpc.dynamic_ssl_server_credentials(
        _configuration(files.current()),
        lambda: _configuration(files.current()),
        require_client_authentication=True,
    )


def channel_credentials(material: TlsMaterial) -> grpc.ChannelCredentials:
    """What the agent calls the scheduler with. A channel keeps them, so a caller whose
    ``TlsFilesOnDisk.current()`` has become another object opens a new one."""
    return grpc.ssl_channel_credentials(
        root_certificates=material.ca,
        private_key=material.key,
        certificate_chain=material.cert,
    )


def channel_options(settings: NodeSettings) -> tuple[tuple[str, str], ...]:
    """Options of a channel to the scheduler: the name that its certificate has to be for, where
    that is not the host that is dialled."""
    name = settings.tls_server_name
    return (("grpc.ssl_target_name_override", name),) if name else ()


def _configuration(material: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(material.key, material.cert)], root_certificates=material.ca
    )


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _content(path: str, key: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{key}: {path} cannot be read: {error.strerror}; name another file, let this user"
            " read it, or set tls_enabled to false"
        ) from error


def _certificates(content: bytes, path: str, key: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise CertificateError(f"{key}: {path} holds no certificate in PEM") from error


def _public_key_of(content: bytes, path: str) -> bytes:
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The library's own words may quote from the key.
        raise CertificateError(
            f"tls_key_path: {path} holds no private key in PEM, or one with a passphrase"
        ) from None
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _public_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
