"""Small texts: ages, amounts and cleaned words. The same thing always looks the same.

Decided here: how a span of time and an amount of a resource are written for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from persys_proto.control.v1 import control_pb2 as pb

__all__ = [
    "NOTHING",
    "age",
    "amount",
    "amount_of",
    "amounts",
    "clean",
    "counted",
    "deadline",
    "in_future",
    "instant",
    "one_line",
    "pairs",
    "plain_number",
    "short_revision",
    "span",
]

NOTHING = "-"
_REVISION_DIGITS = 12
_SPANS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_CONTROL = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_CONTROL |= dict.fromkeys((*range(8234, 8239), *range(8294, 8298)), "�")


def clean(text: str) -> str:
    """``text`` without characters that steer a terminal: it came from elsewhere."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """``text`` on one line: each line break, with the blanks around it, is one blank."""
    return " ".join(text.split()) if "\n" in text or "\t" in text else text


def span(seconds: float) -> str:
    """A span in its largest unit, and the next one where the first is small: ``3m20s``."""
    whole = max(0, int(seconds))
    for (size, name), (below, below_name) in pairwise(_SPANS):
        if whole >= size:
            first, rest = divmod(whole, size)
            second = rest // below
            return (
                f"{first}{name}{second}{below_name}" if first < 10 and second else f"{first}{name}"
            )
    return f"{whole}s"


def _datetime(message: Message, field: str) -> datetime | None:
    if not message.HasField(field):
        return None
    value = getattr(message, field)
    assert isinstance(value, Timestamp)
    try:
        return value.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def age(message: Message, field: str, now: datetime) -> str:
    """How long ago the instant in ``field`` was; ``-`` where it is not set."""
    moment = _datetime(message, field)
    return NOTHING if moment is None else span((now - moment).total_seconds())


def in_future(message: Message, field: str, now: datetime) -> str:
    """``in 12s`` or ``now``; ``-`` where the instant is not set."""
    moment = _datetime(message, field)
    if moment is None:
        return NOTHING
    seconds = (moment - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 1 else "now"


def deadline(message: Message, field: str, now: datetime) -> str:
    """``in 12s``, or ``passed 12s ago``; ``-`` where the instant is not set."""
    moment = _datetime(message, field)
    if moment is None or moment > now:
        return in_future(message, field, now)
    return f"passed {span((now - moment).total_seconds())} ago"


def counted(count: int, noun: str) -> str:
    """``1 workload``, ``2 workloads``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def instant(message: Message, field: str, now: datetime) -> str:
    """The instant in UTC and how long ago it was; ``-`` where it is not set."""
    moment = _datetime(message, field)
    if moment is None:
        return NOTHING
    return f"{moment:%Y-%m-%dT%H:%M:%SZ} ({span((now - moment).total_seconds())} ago)"


def amount(value: int | float, unit: str) -> str:
    """An amount with its unit: cores for millicores, GB for many MB, else as it is."""
    match unit:
        case "millicores":
            return f"{plain_number(value / 1000)} cores" if abs(value) >= 1000 else f"{value:g}m"
        case "MB" if abs(value) >= 1024:
            return f"{plain_number(round(value / 1024, 1))} GB"
        case "":
            return plain_number(value)
        case _:
            return f"{plain_number(value)} {unit}"


def plain_number(value: float) -> str:
    """``2``, ``2.5``, ``100000``: three places at most, and never an exponent."""
    text = f"{value:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def amount_of(resources: Iterable[pb.ResourceAmount], name: str) -> int | None:
    """The amount of one resource; ``None`` where it is not named."""
    return next((each.amount for each in resources if each.name == name), None)


def amounts(resources: Iterable[pb.ResourceAmount]) -> str:
    """``cpu 500m, memory 256 MB``; ``-`` where there are none."""
    parts = [f"{clean(each.name)} {amount(each.amount, clean(each.unit))}" for each in resources]
    return ", ".join(parts) or NOTHING


def pairs(values: Mapping[str, str]) -> str:
    """``a=1, b=2`` in order of name; ``-`` where there are none."""
    return ", ".join(f"{clean(key)}={clean(values[key])}" for key in sorted(values)) or NOTHING


def short_revision(revision: str) -> str:
    """The first digits of a revision, enough to tell two apart."""
    return clean(revision)[:_REVISION_DIGITS] or NOTHING
