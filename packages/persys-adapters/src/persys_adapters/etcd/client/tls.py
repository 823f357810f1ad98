"""Credentials from files that may be replaced while the client runs.

Decided here: the files are looked at whenever a connection is asked for, at most once per interval.
If they changed and fit together, new credentials are made of them, and the pool then replaces every
channel; streams on the old ones end and are opened anew. A pair that is replaced halfway, or is no
longer readable, is not used: the present credentials stay until the files fit.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import grpc

from persys_adapters.etcd.client.config import TlsFiles

__all__ = ["FileCredentials"]

_log = logging.getLogger(__name__)


class FileCredentials:
    """The credentials that the files give at present."""

    def __init__(self, files: TlsFiles, interval: float, now: Callable[[], float]) -> None:
        """Read the files. `ValueError`: they cannot be read, or key and certificate differ."""
        self._files = files
        self._interval = interval
        self._now = now
        self._checked_at = now()
        self._seen = self._signature()
        self.current = self._load()

    def renewed(self) -> bool:
        """Look at the files, if it is time to; whether `current` has changed by it."""
        now = self._now()
        if now < self._checked_at + self._interval:
            return False
        self._checked_at = now
        signature = self._signature()
        if signature == self._seen:
            return False
        self._seen = signature
        try:
            self.current = self._load()
        except ValueError as error:
            _log.warning("the replaced TLS files for etcd are not used: %s", error)
            return False
        return True

    def _paths(self) -> list[str]:
        files = self._files
        return [path for path in (files.authority, files.certificate, files.key) if path]

    def _signature(self) -> tuple[tuple[int, int, int], ...]:
        found = []
        for path in self._paths():
            try:
                status = Path(path).stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)

    def _load(self) -> grpc.ChannelCredentials:
        files = self._files
        for path in self._paths():
            self._read(path)
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if files.authority:
                context.load_verify_locations(files.authority)
            if files.certificate:
                context.load_cert_chain(files.certificate, files.key, password="")
        except (OSError, ValueError) as error:
            reason = f"the TLS files for etcd ({', '.join(self._paths())}) do not fit: {error}"
            raise ValueError(f"{reason}; expected PEM, and the key of the certificate") from error
        return grpc.ssl_channel_credentials(
            self._read(files.authority) if files.authority else None,
            self._read(files.key) if files.key else None,
            self._read(files.certificate) if files.certificate else None,
        )

    def _read(self, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ValueError(f"the TLS file {path} for etcd cannot be read: {reason}") from error
