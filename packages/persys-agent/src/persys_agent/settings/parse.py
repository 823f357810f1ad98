"""Texts turned into values: durations, switches, ports, choices, labels.

Decided here: which spellings are accepted. A parser raises ``ValueError`` whose text says what is
accepted and never quotes the given value, since that may be a secret. Defaults and the meaning of
each setting stand in ``table``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from attrs import frozen

from persys_core.model.ids import is_valid_id

__all__ = [
    "Accelerator",
    "CallerCheck",
    "ContainerNames",
    "LogFormat",
    "PullPolicy",
    "Span",
    "VaultMethod",
    "address",
    "choice",
    "docker_endpoint",
    "flag",
    "host",
    "labels",
    "log_level",
    "names",
    "node_id",
    "optional_address",
    "parse_duration",
    "path",
    "port",
    "pull_policy",
    "text",
    "whole",
]

T = TypeVar("T", bound=StrEnum)

_TRUE = frozenset({"true", "1", "yes", "on", "t", "y"})
_FALSE = frozenset({"false", "0", "no", "off", "f", "n"})
_BARE_SECONDS = re.compile(r"\d+(\.\d+)?\Z", re.ASCII)
_PART = re.compile(r"(?P<amount>\d+(\.\d+)?)(?P<unit>ms|h|m|s)", re.ASCII)
_PARTS = re.compile(r"(\d+(\.\d+)?(ms|h|m|s))+\Z", re.ASCII)
_UNIT_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_LONGEST = timedelta(days=3650)
_DURATION_FORMS = "such as 15s, 2m, 24h, 1h30m, 500ms or bare seconds"
_MOST_DIGITS = 20
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


class Accelerator(StrEnum):
    """What runs the processors of virtual machines; ``auto`` is kvm after a probe that it works."""

    AUTO = "auto"
    KVM = "kvm"
    QEMU = "qemu"


class CallerCheck(StrEnum):
    """What becomes of a caller whose certificate names nobody who may call."""

    ENFORCE = "enforce"
    WARN = "warn"


class PullPolicy(StrEnum):
    """When an image is pulled; ``missing``: where it is not on the host yet."""

    ALWAYS = "always"
    MISSING = "missing"
    NEVER = "never"


class ContainerNames(StrEnum):
    """What a container is called: as its workload, or ``<node>.<workload>``."""

    WORKLOAD = "workload"
    NODE = "node"


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class VaultMethod(StrEnum):
    """How the agent logs in to Vault."""

    APPROLE = "approle"
    TOKEN = "token"


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


def port(given: str) -> int:
    """A TCP port; 0 has the system choose a free one."""
    return _integer(given, 0, 65535, "a port from 1 to 65535, or 0 for any that is free")


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
    """A host's name or address, without a port; IPv6 may stand in brackets."""
    bare = given.removeprefix("[").removesuffix("]")
    if not bare or any(sign in bare for sign in "/ []@"):
        raise ValueError("a host name or an IP address, without a port")
    return bare


def address(given: str) -> str:
    """``host:port``."""
    name, _, digits = given.rpartition(":")
    is_port = digits.isascii() and digits.isdigit() and 1 <= int(digits[:6]) <= 65535
    if not name or not is_port or any(sign in name for sign in "/ @"):
        raise ValueError("host:port, such as 10.0.0.5:8085")
    return given


def optional_address(given: str) -> str:
    """``host:port`` that may be left empty."""
    return address(given) if given else ""


def docker_endpoint(given: str) -> str:
    """Where the Docker Engine listens: what its clients and Compose both understand."""
    scheme, _, rest = given.partition("://")
    with suppress(ValueError):
        if scheme == "unix" and rest.startswith("/") and rest != "/":
            return path(given)
        if scheme == "tcp":
            return f"tcp://{address(rest.removesuffix('/'))}"
    raise ValueError(
        "unix:///path/of/the/socket or tcp://host:port (forward a daemon that is reached by ssh or"
        " TLS to a socket)"
    )


def node_id(given: str) -> str:
    """The id of a node; empty for ``auto``, which has the agent find one."""
    if given in ("", "auto"):
        return ""
    if not is_valid_id(given):
        raise ValueError(
            "auto, or 1 to 253 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return given


def labels(given: str) -> tuple[tuple[str, str], ...]:
    """``k=v,k2=v2``; as the agents in the field, what is no whole pair is left out."""
    pairs = (item.partition("=") for item in given.split(","))
    stripped = ((key.strip(), value.strip()) for key, _, value in pairs)
    return tuple(dict(pair for pair in stripped if all(pair)).items())


def names(given: str) -> tuple[str, ...]:
    """Words of a comma list, each once."""
    return tuple(dict.fromkeys(word for part in given.split(",") if (word := part.strip())))


def choice(kinds: type[T]) -> Callable[[str], T]:
    """A parser of one word of ``kinds``, in any case."""

    def parse(given: str) -> T:
        if given.lower() not in set(kinds):
            raise ValueError(_one_of(kinds))
        return kinds(given.lower())

    return parse


def pull_policy(given: str) -> PullPolicy:
    """A word of ``PullPolicy``; ``IfNotPresent`` is another word for ``missing``. ValueError."""
    if given.lower().replace("-", "") == "ifnotpresent":
        return PullPolicy.MISSING
    return choice(PullPolicy)(given)


def log_level(given: str) -> str:
    """A level's name as Python's logging spells it, in lower case."""
    if given.lower() not in _LEVELS:
        raise ValueError(_one_of(_LEVELS))
    return _LEVELS[given.lower()]


def _integer(given: str, low: int, high: int, accepted: str) -> int:
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise ValueError(accepted)
    if not low <= int(given) <= high:
        raise ValueError(accepted)
    return int(given)


def _one_of(words: Iterable[str]) -> str:
    return "one of " + ", ".join(words)
