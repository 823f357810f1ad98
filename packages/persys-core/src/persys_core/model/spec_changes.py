"""How two wishes differ, field by field, as texts that may be shown.

Decided here: how a field is named and written. What is masked is what the specification itself
hides when it is printed (``model.spec``), so that the two cannot come apart (field report A04).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import Attribute, fields, frozen, has

from persys_core.model.secrets import MASK, masked, masked_command, scrubbed
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    SpecBody,
    VmSpec,
    WorkloadSpec,
    secret_values,
)

__all__ = ["SpecChange", "spec_changes"]

_RESOURCE_FIELDS = {"cpu": "cpu_millicores", "memory": "memory_mb", "disk": "disk_gb"}


@frozen
class SpecChange:
    """One field that differs: its path (``spec.container.ports[0].host_port``) and both values.

    An empty text is a field that is not there. Masked values may read alike on both sides.
    """

    field: str
    old: str
    new: str


@frozen
class _Leaf:
    """One field's value to compare, and the text to show for it."""

    value: object
    shown: str
    is_default: bool = False


def spec_changes(old: WorkloadSpec | None, new: WorkloadSpec) -> tuple[SpecChange, ...]:
    """Every field in which ``new`` differs from ``old``, in the order of the specification.

    Without ``old`` it is every field of ``new`` that is not at its default.
    """
    before = dict(_spec(old)) if old is not None else {}
    after = dict(_spec(new))
    secrets = secret_values(new) | (secret_values(old) if old is not None else frozenset())
    found = []
    for path in dict.fromkeys((*after, *before)):
        was, becomes = before.get(path), after.get(path)
        if was is not None and becomes is not None and was.value == becomes.value:
            continue
        if old is None and becomes is not None and becomes.is_default:
            continue
        texts = [scrubbed(leaf.shown, secrets) if leaf else "" for leaf in (was, becomes)]
        found.append(SpecChange(path, *texts))
    return tuple(found)


def _spec(spec: WorkloadSpec) -> Iterator[tuple[str, _Leaf]]:
    yield "spec.type", _Leaf(spec.type, str(spec.type))
    for name, amount in spec.resources:
        yield f"spec.resources.{_RESOURCE_FIELDS.get(name, name)}", _Leaf(amount, str(amount))
    yield from _mapping("spec.metadata", spec.metadata)
    yield from _parts(f"spec.{_arm(spec.body)}", spec.body)


def _arm(body: SpecBody) -> str:
    match body:
        case ContainerSpec():
            return "container"
        case ComposeSpec():
            return "compose"
        case VmSpec():
            return "vm"


def _parts(path: str, part: Any) -> Iterator[tuple[str, _Leaf]]:
    for each in fields(type(part)):
        yield from _field(f"{path}.{each.name}", getattr(part, each.name), each)


def _field(path: str, value: object, field: Attribute[Any]) -> Iterator[tuple[str, _Leaf]]:
    hidden = callable(field.repr)
    match value:
        case Mapping():
            yield from _mapping(path, value)
        case ():
            return  # a list that is empty is a field that is not there
        case tuple() if has(type(value[0])):
            for index, item in enumerate(value):
                yield from _parts(f"{path}[{index}]", item)
        case tuple():
            words = masked_command(value) if hidden else value
            yield path, _Leaf(value, json.dumps(words, ensure_ascii=False))
        case _ if has(type(value)):
            yield from _parts(path, value)
        case _:
            shown = MASK if hidden and value else _text(value)
            yield path, _Leaf(value, shown, value == field.default)


def _mapping(path: str, values: Mapping[str, str]) -> Iterator[tuple[str, _Leaf]]:
    shown = masked(values)
    for name in sorted(values):
        yield f"{path}[{name}]", _Leaf(values[name], shown[name])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
