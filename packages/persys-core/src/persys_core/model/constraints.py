"""Placement wishes in a workload's metadata, parsed once and checked while they are accepted.

Keys are those of decisions (values: placement metadata) and of the July release. Decided here:
syntax only. What a wish does to a node is decided by the filters in ``placement``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache

from attrs import field, frozen

from persys_core.model.errors import FieldError, InvalidInputError
from persys_core.model.mappings import text_map
from persys_core.model.states import TaintEffect, WorkloadType

__all__ = [
    "PersistenceClass",
    "PlacementConstraints",
    "SchedulingStrategy",
    "Toleration",
    "constraint_errors",
    "parse_constraints",
]

PREFIX = "persys.scheduling."
SELECTOR_PREFIX = PREFIX + "node_selector."
NODE_SYSTEM_KEY = PREFIX + "node_system"
_ALLOW_MOVE_KEYS = (PREFIX + "allow_move", "allow_move")
_DISK_KEYS = ("persys.disk.ids", "disk_ids")
_TRUE = {"true", "1", "yes"}
_FALSE = {"false", "0", "no", ""}
_LIST_SEPARATORS = re.compile(r"[,;\s]+")
_TOLERATION = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:]*))?(:(?P<effect>\w+))?\Z")
PRIORITY_LIMIT = 1_000_000


class SchedulingStrategy(StrEnum):
    """How feasible nodes are ranked."""

    SPREAD = "spread"
    BINPACK = "binpack"


class PersistenceClass(StrEnum):
    """Where a workload's data lives, hence whether it may move."""

    EPHEMERAL = "ephemeral"
    NODE_LOCAL = "node-local"
    SHARED_STORAGE = "shared-storage"


@frozen
class Toleration:
    """A taint that a workload puts up with; ``None`` means any value, any effect."""

    key: str
    value: str | None = None
    effect: TaintEffect | None = None


@frozen
class PlacementConstraints:
    """The parsed wishes; an empty one restricts nothing."""

    node_selector: Mapping[str, str] = field(factory=dict, converter=text_map)
    tolerations: tuple[Toleration, ...] = ()
    anti_affinity: Mapping[str, str] = field(factory=dict, converter=text_map)
    """Labels: a node that runs another workload with one of them is not feasible."""
    spread_by: str = ""
    exclude_nodes: frozenset[str] = frozenset()
    strategy: SchedulingStrategy = SchedulingStrategy.SPREAD
    persistence: PersistenceClass | None = None
    allow_move: bool | None = None
    priority: int = 0
    disk_ids: tuple[str, ...] = ()


def parse_constraints(metadata: Mapping[str, str]) -> PlacementConstraints:
    """Read the wishes in ``metadata``.

    Raises ``InvalidInputError`` that names every malformed key, what it holds and what is
    accepted; a malformed wish is never quietly ignored.
    """
    return _parsed(tuple(metadata.items()))


@lru_cache(maxsize=8192)
def _parsed(items: tuple[tuple[str, str], ...]) -> PlacementConstraints:
    """The same wishes are read at every look at a workload, so they are remembered."""
    metadata = dict(items)
    errors = list(constraint_errors(metadata))
    if errors:
        raise InvalidInputError(errors)
    return PlacementConstraints(
        node_selector=_selector(metadata),
        tolerations=tuple(map(_toleration, _items(metadata.get(PREFIX + "tolerations", "")))),
        anti_affinity=dict(map(_label, _items(metadata.get(PREFIX + "anti_affinity", "")))),
        spread_by=metadata.get(PREFIX + "spread_by", "").strip(),
        exclude_nodes=frozenset(_items(metadata.get(PREFIX + "exclude_nodes", ""))),
        strategy=SchedulingStrategy(_choice(metadata, "strategy") or "spread"),
        persistence=_persistence(metadata),
        allow_move=_allow_move(metadata),
        priority=int(metadata.get(PREFIX + "priority", "0").strip() or "0"),
        disk_ids=tuple(
            disk
            for key in _DISK_KEYS
            for disk in _LIST_SEPARATORS.split(metadata.get(key, ""))
            if disk
        ),
    )


def default_persistence(workload_type: WorkloadType) -> PersistenceClass:
    """Machines keep their data on their node unless they say otherwise."""
    if workload_type in (WorkloadType.VM, WorkloadType.MICROVM):
        return PersistenceClass.NODE_LOCAL
    return PersistenceClass.EPHEMERAL


def constraint_errors(metadata: Mapping[str, str]) -> Iterator[FieldError]:
    """Every malformed placement key in ``metadata``, with what is accepted instead."""
    yield from _key_errors(metadata)
    for item in _items(metadata.get(PREFIX + "tolerations", "")):
        match = _TOLERATION.match(item)
        if match is None or not _is_effect(match["effect"]):
            yield _error(
                "tolerations", item, "key[=value][:Effect], Effect one of " + ", ".join(TaintEffect)
            )
    for item in _items(metadata.get(PREFIX + "anti_affinity", "")):
        if not all(_label(item)):
            yield _error("anti_affinity", item, "a comma list of label=value")
    yield from _choice_errors(metadata, "strategy", SchedulingStrategy)
    yield from _choice_errors(metadata, "persistence_class", PersistenceClass)
    for key in (*_ALLOW_MOVE_KEYS, NODE_SYSTEM_KEY):
        if metadata.get(key, "").strip().lower() not in _TRUE | _FALSE:
            yield _error(key.removeprefix(PREFIX), metadata[key], "true or false")
    priority = metadata.get(PREFIX + "priority", "").strip()
    if priority and not _is_priority(priority):
        yield _error("priority", priority, f"an integer from -{PRIORITY_LIMIT} to {PRIORITY_LIMIT}")


_KNOWN = {
    "node_system",
    "tolerations",
    "anti_affinity",
    "spread_by",
    "exclude_nodes",
    "strategy",
    "persistence_class",
    "allow_move",
    "pinned_reason",
    "priority",
}


def _key_errors(metadata: Mapping[str, str]) -> Iterator[FieldError]:
    for key in metadata:
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if name in _KNOWN or (name.startswith("node_selector.") and name != "node_selector."):
            continue
        yield FieldError(
            f"spec.metadata[{key}]",
            "unknown placement key; accepted are node_selector.<key>, " + ", ".join(sorted(_KNOWN)),
        )


def _choice_errors(
    metadata: Mapping[str, str], name: str, choices: type[StrEnum]
) -> Iterator[FieldError]:
    given = _choice(metadata, name)
    if given and given not in set(choices):
        yield _error(name, given, "one of " + ", ".join(choices))


def _error(name: str, value: str, accepted: str) -> FieldError:
    key = name if name in _ALLOW_MOVE_KEYS else PREFIX + name
    return FieldError(f"spec.metadata[{key}]", f"{value!r} is not valid; accepted is {accepted}")


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _label(item: str) -> tuple[str, str]:
    key, _, value = item.partition("=")
    return key.strip(), value.strip()


def _is_effect(text: str | None) -> bool:
    return text is None or text in set(TaintEffect)


def _is_priority(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and int(digits) <= PRIORITY_LIMIT


def _toleration(item: str) -> Toleration:
    match = _TOLERATION.match(item)
    assert match is not None  # constraint_errors looked at every item before
    effect = match["effect"]
    return Toleration(match["key"], match["value"], TaintEffect(effect) if effect else None)


def _selector(metadata: Mapping[str, str]) -> dict[str, str]:
    return {
        key.removeprefix(SELECTOR_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(SELECTOR_PREFIX)
    }


def _choice(metadata: Mapping[str, str], name: str) -> str:
    return metadata.get(PREFIX + name, "").strip().lower()


def _persistence(metadata: Mapping[str, str]) -> PersistenceClass | None:
    given = _choice(metadata, "persistence_class")
    if given:
        return PersistenceClass(given)
    if metadata.get("persys.storage.shared", "").strip().lower() in _TRUE:
        return PersistenceClass.SHARED_STORAGE
    if metadata.get("persys.storage.local", "").strip().lower() in _TRUE:
        return PersistenceClass.NODE_LOCAL
    return None


def _allow_move(metadata: Mapping[str, str]) -> bool | None:
    for key in _ALLOW_MOVE_KEYS:
        given = metadata.get(key, "").strip().lower()
        if given:
            return given in _TRUE
    return None
