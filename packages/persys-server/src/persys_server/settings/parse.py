"""Texts of the environment turned into values: ports, lists, the store, and what all programs read
alike.

Decided here: which spellings the server accepts beside those of ``persys_core.settings.texts``. A
parser raises ``ValueError`` whose text says what is accepted and never quotes the given value,
which may be a secret. Defaults and the meaning of each variable stand in ``table``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from ipaddress import IPv6Address

from attrs import frozen

from persys_adapters.redis.address import address_of
from persys_core.settings.texts import (
    LogFormat,
    Span,
    choice,
    flag,
    log_level,
    parse_duration,
    path,
    text,
    whole,
    whole_number,
)

__all__ = [
    "AuthzMode",
    "LogFormat",
    "Span",
    "StoreKind",
    "StoreTarget",
    "VaultMethod",
    "address",
    "addresses",
    "choice",
    "flag",
    "host",
    "log_level",
    "name_list",
    "optional_flag",
    "optional_port",
    "parse_duration",
    "path",
    "port",
    "store",
    "text",
    "whole",
]

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")


class AuthzMode(StrEnum):
    """Whether the role of a certificate is enforced."""

    ENFORCE = "enforce"
    WARN = "warn"


class VaultMethod(StrEnum):
    """How the server logs in to Vault."""

    TOKEN = "token"
    APPROLE = "approle"


class StoreKind(StrEnum):
    """Where cluster state lives."""

    ETCD = "etcd"
    SQLITE = "sqlite"
    MEMORY = "memory"


@frozen
class StoreTarget:
    """A parsed ``PERSYS_STORE``; ``path`` is set for sqlite only."""

    kind: StoreKind
    path: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.path}" if self.path else str(self.kind)


def optional_flag(given: str) -> bool | None:
    """A switch that may be left empty."""
    return flag(given) if given else None


def port(given: str) -> int:
    """A TCP port."""
    return whole_number(given, 1, 65535, "a port from 1 to 65535")


def optional_port(given: str) -> int | None:
    """A TCP port that may be left empty."""
    return port(given) if given else None


def host(given: str) -> str:
    """A host's name or IP address, without a port, that may be left empty."""
    if given and not (_HOST.match(given) or _is_ipv6(given)):
        raise ValueError("a host name or an IP address, without a port")
    return given


def name_list(given: str) -> tuple[str, ...]:
    """A comma list; blanks around the items and empty items are dropped."""
    return tuple(item.strip() for item in given.split(",") if item.strip())


def address(given: str) -> str:
    """``host:port`` that may be left empty."""
    if given:
        address_of(given)
    return given


def addresses(given: str) -> tuple[str, ...]:
    """A comma list of ``host:port``."""
    return tuple(address(each) for each in name_list(given))


def store(given: str) -> StoreTarget:
    """``etcd``, ``memory`` or ``sqlite:PATH``."""
    kind, colon, where = given.partition(":")
    match kind.lower():
        case "etcd" | "memory" if not colon:
            return StoreTarget(StoreKind(kind.lower()))
        case "sqlite" if where:
            return StoreTarget(StoreKind.SQLITE, path(where))
        case _:
            raise ValueError(
                "etcd, sqlite:PATH (such as sqlite:/var/lib/persys/state.db) or memory"
            )


def _is_ipv6(given: str) -> bool:
    try:
        IPv6Address(given)
    except ValueError:
        return False
    return True
