"""Texts turned into values: durations, switches, whole numbers, choices, levels of the log.

Decided here: which spellings every program accepts. A parser raises ``ValueError`` whose text says
what is accepted and never quotes the given value, since that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from attrs import frozen

__all__ = [
    "LogFormat",
    "Span",
    "choice",
    "flag",
    "log_level",
    "parse_duration",
    "path",
    "text",
    "whole",
    "whole_number",
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


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``low`` to ``high``."""

    def parse(given: str) -> int:
        return whole_number(given, low, high, f"a whole number from {low} to {high}")

    return parse


def text(given: str) -> str:
    """Any text."""
    return given


def path(given: str) -> str:
    """A file system path."""
    if "\0" in given:
        raise ValueError("a path")
    return given


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


def whole_number(given: str, low: int, high: int, accepted: str) -> int:
    """A whole number from ``low`` to ``high``; ValueError with ``accepted``."""
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise ValueError(accepted)
    if not low <= int(given) <= high:
        raise ValueError(accepted)
    return int(given)


def _one_of(words: Iterable[str]) -> str:
    return "one of " + ", ".join(filter(None, words))
