"""What a single service of an application may have: never more than the whole asks for.

Decided here: a service without a limit of its own gets the whole, one with a higher limit is
lowered to it, and a lower one stays. That is all there is where the sum cannot be held (``sums``),
so the containers of one service share the whole there; where it can, the kernel wants it so too, as
no group may have a higher quota than the one above. Both spellings of a limit are written where a
file has both, since Compose refuses two that differ.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from persys_agent.runtimes.compose.reading import word
from persys_agent.runtimes.docker.documents import Document, at, document
from persys_core.model.resources import CPU, MEMORY, Resources

__all__ = ["capped", "copies"]

_BYTES_PER_MB = 1024 * 1024
_SIZE = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[bkmgt]?)i?b?\Z", re.IGNORECASE)
_UNITS = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_PERIOD_MICROSECONDS = 100_000
_MICROSECONDS_PER_MILLICORE = _PERIOD_MICROSECONDS // 1000
_LEAST_MILLICORES = 10
"""The kernel takes no quota below a millisecond."""
_WHOLE_NUMBER = re.compile(r"\d{1,6}", re.ASCII)
_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?)\s*(?P<unit>ms|us|\u00b5s|ns|s|m|h)", re.IGNORECASE)
_MICROSECONDS = {"h": 3.6e9, "m": 6e7, "s": 1e6, "ms": 1e3, "us": 1, "\u00b5s": 1, "ns": 1e-3}
_LIMITS = ("deploy", "resources", "limits")
_RESERVED = ("deploy", "resources", "reservations")


def capped(service: Document, asked: Resources, sharing: int = 1) -> Mapping[str, object]:
    """What to lay over a service of an application that asks for so much, for ``sharing``
    containers."""
    laid: dict[str, object] = {}
    limits: dict[str, object] = {}
    if asked.get(CPU):
        _cap_cpu(service, max(_LEAST_MILLICORES, asked.get(CPU) // sharing), laid, limits)
    deploy: dict[str, object] = {}
    if asked.get(MEMORY):
        most = asked.get(MEMORY) * _BYTES_PER_MB // sharing
        deploy.update(_cap_memory(service, most, laid, limits))
    if limits and document(service, *_LIMITS):
        deploy["limits"] = limits
    return {**laid, "deploy": {"resources": deploy}} if deploy else laid


def copies(service: Document) -> tuple[int, int]:
    """How many containers of a service there are at least and at most. The keys that say it should
    say the same. Raises ``ValueError`` for what is no plain number, which Compose may read as
    another one than this does."""
    said = {"scale": service.get("scale"), "deploy.replicas": at(service, "deploy", "replicas")}
    found = []
    for key, value in said.items():
        if value is None:
            continue
        if not _WHOLE_NUMBER.fullmatch(word(value)):
            raise ValueError(f'{key}: "{word(value)}" is no whole number of containers, such as 3')
        found.append(int(word(value)))
    return min(found, default=1), max(found, default=1)


def _cap_cpu(
    service: Document, millicores: int, laid: dict[str, object], limits: dict[str, object]
) -> None:
    """A quota of its own stays a quota: the Engine takes no service that has both. Its period is
    replaced with ours, so that the whole is the most however the file writes it."""
    if quota := _number(service.get("cpu_quota")):
        period = _period(service.get("cpu_period")) or _PERIOD_MICROSECONDS
        most = millicores * _MICROSECONDS_PER_MILLICORE
        laid["cpu_quota"] = int(min(most, max(1000, quota * _PERIOD_MICROSECONDS / period)))
        if service.get("cpu_period") is not None:
            laid["cpu_period"] = _PERIOD_MICROSECONDS
        return
    own = (service.get("cpus"), at(service, *_LIMITS, "cpus"))
    cores = min([millicores / 1000, *filter(None, map(_number, own))])
    laid["cpus"] = cores
    limits["cpus"] = str(cores)


def _period(value: object) -> float:
    """In microseconds; Compose v1 also takes ``1m2s3ms``. 0 for anything else."""
    if number := _number(value):
        return number
    text = word(value).strip()
    if not text or _TIME.sub("", text):
        return 0.0
    return sum(
        float(each["number"]) * _MICROSECONDS[each["unit"].lower()] for each in _TIME.finditer(text)
    )


def _cap_memory(
    service: Document, most: int, laid: dict[str, object], limits: dict[str, object]
) -> Mapping[str, object]:
    """Memory without swap; a reservation may not be above the limit. What ``deploy`` gets."""
    own = (service.get("mem_limit"), at(service, *_LIMITS, "memory"))
    memory = min([most, *filter(None, map(_size, own))])
    laid["mem_limit"] = laid["memswap_limit"] = str(memory)
    limits["memory"] = str(memory)
    if _size(service.get("mem_reservation")) > memory:
        laid["mem_reservation"] = str(memory)
    if _size(at(service, *_RESERVED, "memory")) > memory:
        return {"reservations": {"memory": str(memory)}}
    return {}


def _number(value: object) -> float:
    """A positive number, also as text; 0 for anything else, and for what has no end."""
    try:
        number = float(word(value))
    except ValueError:
        return 0.0
    return number if number > 0 and math.isfinite(number) else 0.0


def _size(value: object) -> int:
    """Bytes, as Compose reads them; 0 for what is no size."""
    found = _SIZE.match(word(value).strip())
    if found is None:
        return 0
    size = float(found["number"]) * 1024 ** _UNITS[found["unit"].lower()]
    return int(size) if math.isfinite(size) else 0
