"""Quantities as people write them, turned into the integers of the contract (field report A01).

Decided here: which suffixes exist and what they are worth. Persys counts memory in MB of 1,048,576
bytes and disks in GB of 1,024 such MB, so MB means MiB and GB means GiB. Nothing is rounded: what
is not a whole number of the contract's unit is refused, with the two nearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from persysctl.suggest import nearest

__all__ = [
    "MAX_CPU_MILLICORES",
    "MAX_DISK_GB",
    "MAX_MEMORY_MB",
    "parse_cpu_millicores",
    "parse_disk_gb",
    "parse_duration_seconds",
    "parse_memory_mb",
]

MAX_CPU_MILLICORES = 10**8
MAX_MEMORY_MB = 10**10
MAX_DISK_GB = 10**9
"""The scheduler's own limits per workload; what is beyond is a mistake of unit."""

_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<suffix>[A-Za-zµ]*)\Z", re.ASCII)
_EXPONENT = re.compile(r"[0-9.]+[eE][+-]?[0-9]+\Z", re.ASCII)
_MAX_LENGTH = 40

_BYTES: Mapping[str, int] = {
    suffix: 1024**power
    for power, names in enumerate(
        (("B",), ("Ki", "KiB"), ("Mi", "MiB", "MB"), ("Gi", "GiB", "GB"), ("Ti", "TiB", "TB"),
         ("Pi", "PiB", "PB"), ("Ei", "EiB", "EB"))
    )
    for suffix in names
}  # fmt: skip
_MB = 1024**2
_GB = 1024**3
_SIZE_WORDS = "Ki, Mi, Gi, Ti (or MB, GB, TB, which mean the same here)"
_SECONDS: Mapping[str, Fraction] = {
    "ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600),
    "d": Fraction(86400),
}  # fmt: skip


def parse_cpu_millicores(text: str) -> int:
    """Millicores of ``500m``, ``0.5`` or ``2``. Raises ValueError with a text for people."""
    number, suffix = _split(text, "a number of cores like 0.5 or 2, or millicores like 500m")
    if suffix not in ("", "m"):
        raise ValueError(f"{text!r}: {suffix!r} is no unit of CPU; write 500m, 0.5 or 2")
    return _whole(text, number if suffix else number * 1000, "m", MAX_CPU_MILLICORES)


def parse_memory_mb(text: str) -> int:
    """MB of ``256Mi``, ``1Gi``, ``0.5Gi`` or ``512MB``. Raises ValueError."""
    return _whole(text, _bytes(text, "256Mi") / _MB, "Mi", MAX_MEMORY_MB)


def parse_disk_gb(text: str) -> int:
    """GB of ``10Gi``, ``10GB`` or ``1Ti``. Raises ValueError."""
    return _whole(text, _bytes(text, "10Gi") / _GB, "Gi", MAX_DISK_GB)


def parse_duration_seconds(text: str) -> float:
    """Seconds of ``500ms``, ``60s``, ``2m``, ``1h`` or bare seconds. Raises ValueError."""
    number, suffix = _split(text, "a duration like 30s or 2m")
    if suffix not in ("", *_SECONDS):
        raise ValueError(f"{text!r}: {suffix!r} is no unit of time; write ms, s, m, h or d")
    return float(number * _SECONDS[suffix or "s"])


def _split(text: str, accepted: str) -> tuple[Fraction, str]:
    shown = text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…"
    if not text.strip():
        raise ValueError(f"is empty; write {accepted}")
    if text.lstrip().startswith("-"):
        raise ValueError(f"{shown!r} is negative; write {accepted}")
    if _EXPONENT.match(text):
        raise ValueError(f"{shown!r} has an exponent; write {accepted}")
    match = _QUANTITY.match(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise ValueError(f"{shown!r} is not {accepted}")
    if _is_octal_like(match["number"]):
        raise ValueError(f"{shown!r} begins with a zero, which some readers take for octal")
    return Fraction(match["number"]), match["suffix"]


def _is_octal_like(number: str) -> bool:
    return len(number) > 1 and number[0] == "0" and number[1] != "."


def _bytes(text: str, example: str) -> Fraction:
    number, suffix = _split(text, f"a size with its unit like {example}")
    if suffix in _BYTES:
        return number * _BYTES[suffix]
    if not suffix:
        if number == 0:
            return number
        raise ValueError(f"{text!r} has no unit; write for example {example}")
    raise ValueError(f"{text!r}: {_why_not(suffix)}; write {_SIZE_WORDS}")


def _why_not(suffix: str) -> str:
    if suffix == "m":
        return "'m' means a thousandth, which is no unit of size"
    if suffix in "kKMGTPE":
        return f"{suffix!r} may mean powers of 1000 or of 1024"
    match = nearest(suffix, _BYTES)
    return f"{suffix!r} is no unit of size" + (f" (did you mean {match!r}?)" if match else "")


def _whole(text: str, amount: Fraction, unit: str, limit: int) -> int:
    if amount > limit:
        most = f"{limit // 1000} cores" if unit == "m" else f"{limit}{unit}"
        raise ValueError(f"{text!r} is too large; at most {most} is accepted")
    if amount.denominator != 1:
        below = int(amount)
        raise ValueError(
            f"{text!r} is not a whole number of {unit}; the nearest are {below}{unit}"
            f" and {below + 1}{unit}"
        )
    return int(amount)
