"""How to reach etcd: endpoints, credentials and how long to wait.

Decided here: what is accepted, and every default. Nothing is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from attrs import field, frozen

__all__ = ["EtcdConfig", "TlsFiles", "address_of"]

_SCHEMES = ("http://", "https://")


def _as_tuple(endpoints: Iterable[str]) -> tuple[str, ...]:
    return tuple(endpoints)


@frozen
class TlsFiles:
    """PEM files for TLS. They may be replaced at any time: see ``tls``.

    Without ``authority`` the system's roots are trusted; ``certificate`` and ``key`` are the
    client's own and go together. ``server_name`` is what the server's certificate must name, where
    that is not the host that is dialled.
    """

    authority: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def __attrs_post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("TLS to etcd needs certificate and key together, or neither of them")


@frozen
class EtcdConfig:
    """Everything that a client is told.

    ``endpoints`` are ``host:port``, with ``http://`` or ``https://`` before it if you like.
    ``call_timeout`` is the longest that a call takes, ``attempt_timeout`` the longest that one
    endpoint is waited for within it, ``connect_timeout`` the same for its connection alone.
    ``keep_alive_silence`` is how long the stream of keepalives may be silent with a question open
    before another endpoint is asked; ``watch_idle_timeout`` how long a watch may hear nothing, not
    even the answer to a progress request, before it is opened anew.
    """

    endpoints: tuple[str, ...] = field(converter=_as_tuple)
    user: str = ""
    password: str = field(default="", repr=False)
    tls: TlsFiles | None = None
    call_timeout: timedelta = timedelta(seconds=5)
    attempt_timeout: timedelta = timedelta(seconds=2)
    connect_timeout: timedelta = timedelta(seconds=1)
    keep_alive_silence: timedelta = timedelta(seconds=1)
    watch_idle_timeout: timedelta = timedelta(seconds=5)
    tls_check_interval: timedelta = timedelta(seconds=5)

    def __attrs_post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("no etcd endpoint is given; name at least one as host:port")
        for endpoint in self.endpoints:
            self._check(endpoint)
        if self.password and not self.user:
            raise ValueError("a password for etcd is given, but no user; give both or neither")

    def _check(self, endpoint: str) -> None:
        if "@" in endpoint:
            # Not shown: it may have a password.
            raise ValueError("an etcd endpoint names a user; give user and password apart")
        host, _, port = address_of(endpoint).rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ValueError(f"{endpoint!r} is no etcd endpoint; expected host:port")
        if endpoint.startswith("http://") and self.tls is not None:
            raise ValueError(f"{endpoint!r} is without TLS, but TLS files for etcd are given")

    @property
    def secure(self) -> bool:
        """Whether connections use TLS."""
        return self.tls is not None or any(e.startswith("https://") for e in self.endpoints)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The endpoints as ``host:port``, in the given order, each once."""
        return tuple(dict.fromkeys(map(address_of, self.endpoints)))


def address_of(endpoint: str) -> str:
    """An endpoint without its scheme and the slash at its end."""
    for scheme in _SCHEMES:
        endpoint = endpoint.removeprefix(scheme)
    return endpoint.rstrip("/")
