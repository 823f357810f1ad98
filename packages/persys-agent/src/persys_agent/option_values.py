"""Words of the command line turned into values.

Decided here: what a flag may hold. Each parser raises argparse's own error, whose text names the
word and what is accepted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TypeVar

from persys_core.model.ids import is_valid_id
from persys_core.model.states import WorkloadType
from persys_core.placement.demand import LOCAL_DRIVER, driver_name

__all__ = [
    "DRIVERS",
    "MAX_NODES",
    "address",
    "drivers",
    "labels",
    "labels_of",
    "node_id",
    "number",
    "pair",
    "types",
    "whole",
]

MAX_NODES = 10_000

N = TypeVar("N", int, float)
DRIVERS = (LOCAL_DRIVER, "nfs", "ceph-rbd")


def _wrong(text: str, accepted: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f'"{text}" is not accepted; give {accepted}')


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from ``least`` to ``most``."""
    return _between(int, least, most, "a whole number")


def number(least: float, most: float) -> Callable[[str], float]:
    """A number from ``least`` to ``most``."""
    return _between(float, least, most, "a number")


def _between(kind: Callable[[str], N], least: N, most: N, name: str) -> Callable[[str], N]:
    def parse(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            raise _wrong(text, f"{name} from {least:g} to {most:g}") from None
        if not least <= value <= most:  # false for NaN as well
            raise _wrong(text, f"{name} from {least:g} to {most:g}")
        return value

    return parse


def address(text: str) -> str:
    """``host:port``."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise _wrong(text, "HOST:PORT, such as 127.0.0.1:8085")
    return text


def node_id(text: str) -> str:
    """A node's id, which a number may follow."""
    if not is_valid_id(f"{text}-{MAX_NODES}"):
        raise _wrong(text, "letters, digits, '.', '_' and '-', beginning with a letter or digit")
    return text


def types(text: str) -> tuple[WorkloadType, ...]:
    """A comma list of kinds of workloads."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    try:
        found = tuple(dict.fromkeys(map(WorkloadType, names)))
    except ValueError:
        found = ()
    if not found:
        raise _wrong(text, "a comma list of " + ", ".join(WorkloadType))
    return found


def drivers(text: str) -> frozenset[str]:
    """A comma list of storage drivers; local is always one of them."""
    names = {driver_name(part) for part in text.split(",") if part.strip()}
    if not names or not names <= set(DRIVERS):
        raise _wrong(text, "a comma list of " + ", ".join(DRIVERS))
    return frozenset(names | {LOCAL_DRIVER})


def labels(text: str) -> dict[str, str]:
    """``k=v,k2=v2``, every pair whole."""
    pairs = [part.strip() for part in text.split(",") if part.strip()]
    found = dict(pair(part) for part in pairs)
    if "" in found or "" in found.values():
        raise _wrong(text, "K=V,K=V with neither key nor value empty")
    return found


def pair(part: str) -> tuple[str, str]:
    """Key and value of ``k=v``, either empty where it is not there."""
    key, _, value = part.partition("=")
    return key.strip(), value.strip()


def labels_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The labels that the environment says, as the agents in the field read it: what is no pair is
    left out."""
    pairs = map(pair, environment.get("PERSYS_NODE_LABELS", "").split(","))
    labels = {key: value for key, value in pairs if key and value}
    for name in ("region", "env"):
        if value := environment.get(f"PERSYS_NODE_{name.upper()}", ""):
            labels[name] = value
    return labels
