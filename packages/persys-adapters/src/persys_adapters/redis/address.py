"""Where Redis is, and how people write it: ``host:port``. Imports no client."""

from __future__ import annotations

from ipaddress import IPv6Address

from attrs import field, frozen

__all__ = [
    "DEFAULT_PORT",
    "SENTINEL_PORT",
    "Address",
    "RedisTarget",
    "RedisTls",
    "address_of",
]

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379


@frozen
class Address:
    """A host and a port."""

    host: str
    port: int


@frozen
class RedisTls:
    """TLS towards Redis and its sentinels. Empty paths: the system's authorities, no client
    certificate. The server's certificate must name the host that is dialled."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@frozen
class RedisTarget:
    """Where Redis is: an address, or sentinels that know the master called ``master_name``."""

    address: Address | None = None
    sentinels: tuple[Address, ...] = ()
    master_name: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    sentinel_username: str = ""
    sentinel_password: str = field(default="", repr=False)
    db: int = 0
    tls: RedisTls | None = None


def address_of(text: str, port: int = DEFAULT_PORT) -> Address:
    """``host``, ``host:port`` or ``[v6]:port``; ValueError says what is accepted."""
    host, _, number = text.rpartition(":") if _has_port(text) else (text, "", str(port))
    host = host.removeprefix("[").removesuffix("]")
    wrong = not host or set(host) & set("/@ ") or (":" in host and not _is_ipv6(host))
    if wrong or not (number.isascii() and number.isdigit() and 0 < int(number) < 65536):
        raise ValueError("host:port, such as redis.example:6379 or [::1]:6379")
    return Address(host, int(number))


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def _has_port(text: str) -> bool:
    return "]:" in text if text.startswith("[") else text.count(":") == 1
