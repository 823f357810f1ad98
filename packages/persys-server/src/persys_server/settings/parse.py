"""Texts of the environment turned into values: durations, switches, ports, choices, the store.

Decided here: which spellings are accepted. A parser raises ``ValueError`` whose text says what is
accepted and never quotes the given value, since that may be a secret. Defaults and the meaning of
each variable stand in ``table``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv6Address
from typing import TypeVar

from attrs import frozen

from persys_adapters.redis.address import address_of

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

T = TypeVar("T", bound=StrEnum)

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})
_BARE_SECONDS = re.compile(r"\d+(\.\d+)?\Z")
_PART = re.compile(r"(?P<amount>\d+(\.\d+)?)(?P<unit>ms|h|m|s)")
_PARTS = re.compile(r"(\d+(\.\d+)?(ms|h|m|s))+\Z")
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST = timedelta(days=3650)
_DURATION_FORMS = "such as 15s, 2m, 1h30m, 500ms or bare seconds"
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "fatal": "critical",
    "panic": "critical",
    "critical": "critical",
}


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


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


def parse_duration(given: str) -> timedelta:
    """``15s``, ``2m``, ``24h``, ``1h30m``, ``500ms`` or bare seconds; never negative."""
    if _BARE_SECONDS.match(given):
        seconds = float(given)
    elif _PARTS.match(given):
        seconds = sum(
            float(part["amount"]) * _UNIT_SECONDS[part["unit"]] for part in _PART.finditer(given)
        )
    else:
        raise ValueError(f"a duration {_DURATION_FORMS}")
    if seconds > _LONGEST.total_seconds():
        raise ValueError("a duration of at most ten years")
    return timedelta(seconds=seconds)


@frozen
class Span:
    """A parser of durations from ``least`` on, which is written as people write it.

    With ``or_never``, zero is accepted as well and switches off what it belongs to.
    """

    least: str
    or_never: bool = False

    def __call__(self, given: str) -> timedelta:
        """The duration; ValueError says what is accepted."""
        parsed = parse_duration(given)
        if parsed < parse_duration(self.least) and (parsed or not self.or_never):
            raise ValueError(f"a duration of {self}, {_DURATION_FORMS}")
        return parsed

    def __str__(self) -> str:
        return f"at least {self.least}" + (", or 0" if self.or_never else "")


def flag(given: str) -> bool:
    """A switch, in any case."""
    lowered = given.lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError("true or false (also 1, 0, yes, no, on, off)")
    return lowered in _TRUE


def optional_flag(given: str) -> bool | None:
    """A switch that may be left empty."""
    return flag(given) if given else None


def port(given: str) -> int:
    """A TCP port."""
    return _integer(given, 1, 65535, "a port from 1 to 65535")


def optional_port(given: str) -> int | None:
    """A TCP port that may be left empty."""
    return port(given) if given else None


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``low`` to ``high``."""

    def parse(given: str) -> int:
        return _integer(given, low, high, f"a whole number from {low} to {high}")

    return parse


def text(given: str) -> str:
    """Any text."""
    return given


def path(given: str) -> str:
    """A file system path."""
    if "\0" in given:
        raise ValueError("a path")
    return given


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


def choice(kinds: type[T]) -> Callable[[str], T]:
    """A parser of one word of ``kinds``, in any case."""

    def parse(given: str) -> T:
        if given.lower() not in set(kinds):
            raise ValueError(_one_of(kinds))
        return kinds(given.lower())

    return parse


def log_level(given: str) -> str:
    """A level's name as Python's logging spells it, in lower case."""
    if given.lower() not in _LEVELS:
        raise ValueError(_one_of(_LEVELS))
    return _LEVELS[given.lower()]


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


def _integer(given: str, low: int, high: int, accepted: str) -> int:
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        raise ValueError(accepted)
    if not low <= int(given) <= high:
        raise ValueError(accepted)
    return int(given)


def _is_ipv6(given: str) -> bool:
    try:
        IPv6Address(given)
    except ValueError:
        return False
    return True


def _one_of(words: Iterable[str]) -> str:
    return "one of " + ", ".join(filter(None, words))
