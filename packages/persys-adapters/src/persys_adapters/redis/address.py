"""Where a server is, as people write it: ``host:port``."""

from __future__ import annotations

from attrs import frozen

__all__ = ["DEFAULT_PORT", "SENTINEL_PORT", "Address", "address_of"]

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379


@frozen
class Address:
    """A host and a port."""

    host: str
    port: int


def address_of(text: str, port: int = DEFAULT_PORT) -> Address:
    """``host``, ``host:port`` or ``[v6]:port``; ValueError says what is accepted."""
    host, _, number = text.rpartition(":") if _has_port(text) else (text, "", str(port))
    host = host.removeprefix("[").removesuffix("]")
    wrong = set(host) & set("/@ ") or not host
    if wrong or not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise ValueError("host:port, such as redis.example:6379 or [::1]:6379")
    return Address(host, int(number))


def _has_port(text: str) -> bool:
    return "]:" in text if text.startswith("[") else text.count(":") == 1
