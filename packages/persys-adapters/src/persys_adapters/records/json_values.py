"""How single values stand in JSON: names, instants, resources, and what we do not know.

One cattrs converter for all records: names in camel case, defaults left out, instants in RFC 3339
where the zero instant of Go reads as none, ``null`` the same as missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from functools import partial
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from attrs import NOTHING, fields, has
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from persys_core.model.resources import Resources

__all__ = [
    "EPOCH",
    "JsonObject",
    "Known",
    "dumped",
    "from_json",
    "instant",
    "known_names",
    "merged",
    "named",
    "only_read",
    "parsed",
    "to_json",
    "unknown_in",
]

JsonObject: TypeAlias = dict[str, Any]
Known: TypeAlias = "Mapping[str, Known | None]"
"""Names in a JSON object; for those that hold an object with names of its own, these."""

EPOCH = datetime.fromtimestamp(0, UTC)
"""Stands for an instant that a record should have and does not."""

_NAME = "persys_json_name"
_ONLY_READ = "persys_only_read"
_GO_ZERO_TIME = "0001-01-01T00:00:00Z"
_T = TypeVar("_T")


def parsed(raw: bytes) -> JsonObject:
    """The JSON object in ``raw``, without its nulls. Raises ValueError for anything else."""
    value = json.loads(raw.decode())
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__} where an object is wanted")
    # Hardly any record has a null, and the walk costs as much as the parser.
    found: JsonObject = _without_nulls(value) if b"null" in raw else value
    return found


def dumped(value: JsonObject) -> bytes:
    """``value`` as compact JSON in UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def to_json(value: object) -> JsonObject:
    """An attrs value as a JSON object; what equals its default is left out."""
    result: JsonObject = _converter.unstructure(value)
    return result


def from_json(value: JsonObject, kind: type[_T]) -> _T:
    """The attrs class ``kind`` from a JSON object; missing fields get their defaults.

    Raises an exception of any class where a required field is missing or of another type.
    """
    return _converter.structure(value, kind)


def instant(text: str) -> datetime | None:
    """The instant that ``text`` names (RFC 3339), aware UTC; ``None`` where it names none."""
    if not text or text == _GO_ZERO_TIME:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is UTC:
        return found
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def named(name: str) -> dict[str, str]:
    """Metadata of a field whose name in JSON is not its own in camel case."""
    return {_NAME: name}


def only_read() -> dict[str, bool]:
    """Metadata of a field that is read and never written: it counts as unknown, so it stays."""
    return {_ONLY_READ: True}


def known_names(kind: type) -> Known:
    """The JSON names that the attrs class ``kind`` writes, and those inside of its fields."""
    hints = get_type_hints(kind)
    return {
        _json_name(field): _known_inside(hints[field.name])
        for field in fields(kind)
        if not field.metadata.get(_ONLY_READ)
    }


def unknown_in(value: JsonObject, known: Known) -> JsonObject:
    """The part of ``value`` that is not ``known``, at any depth.

    Items of lists are replaced as a whole when they are written, so nothing is looked for there.
    """
    unknown: JsonObject = {}
    for name, part in value.items():
        if name not in known:
            unknown[name] = part
        elif isinstance(part, dict):
            nested = known[name]
            inner = unknown_in(part, nested) if nested is not None else None
            if inner:
                unknown[name] = inner
    return unknown


def merged(value: JsonObject, unknown: JsonObject) -> JsonObject:
    """``value`` with ``unknown`` added to it; what ``value`` says itself stays."""
    result = dict(value)
    for name, part in unknown.items():
        ours = result.get(name)
        if isinstance(ours, dict) and isinstance(part, dict):
            result[name] = merged(ours, part)
        else:
            result.setdefault(name, part)
    return result


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _json_name(field: Any) -> str:
    """The name of a field in JSON: its own in camel case, or the one in its metadata."""
    return str(field.metadata.get(_NAME, _camel(field.name)))


def _known_inside(hint: Any) -> Known | None:
    """The names inside a field that holds one attrs value, or none; ``None`` for other fields."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    classes = [option for option in options if option is not NoneType]
    return known_names(classes[0]) if len(classes) == 1 and _is_shape(classes[0]) else None


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_nulls(part) for name, part in value.items() if part is not None}
        case list():
            return [_without_nulls(part) for part in value]
        case _:
            return value


def _instant_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _resources(value: Any, _: type) -> Resources:
    return Resources({str(name): int(amount) for name, amount in value.items()})


def _text(value: Any, _: type) -> str:
    if isinstance(value, (dict, list)):
        raise ValueError(f"a JSON {type(value).__name__} where a text is wanted")
    return str(value)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False, unstruct_collection_overrides={Set: sorted})
    converter.register_unstructure_hook(datetime, _instant_text)
    converter.register_structure_hook(datetime, lambda value, _: instant(value) or EPOCH)
    converter.register_structure_hook_func(
        lambda hint: hint == datetime | None, lambda value, _: instant(value) if value else None
    )
    converter.register_unstructure_hook(Resources, lambda value: dict(value.amounts))
    converter.register_structure_hook(Resources, _resources)
    # For str itself only: registered by class, it would take the words of every StrEnum as well.
    converter.register_structure_hook_func(lambda hint: hint is str, _text)
    converter.register_unstructure_hook_factory(_is_shape, partial(_unstructure, converter))
    converter.register_structure_hook_factory(_is_shape, partial(_structure, converter))
    return converter


def _is_shape(kind: Any) -> bool:
    return isinstance(kind, type) and has(kind) and kind is not Resources


def _unstructure(converter: Converter, kind: Any) -> Any:
    return make_dict_unstructure_fn(kind, converter, _cattrs_omit_if_default=True, **_renamed(kind))


def _structure(converter: Converter, kind: Any) -> Any:
    structure = make_dict_structure_fn(kind, converter, **_renamed(kind))
    missing = _defaults_of_required(kind)

    def hook(value: Any, wanted: Any) -> Any:
        if isinstance(value, kind):
            return value
        if not isinstance(value, dict):
            raise ValueError(f"a JSON {type(value).__name__} where an object is wanted")
        return structure({**missing, **value} if missing else value, wanted)

    return hook


def _renamed(kind: Any) -> Any:
    return {field.name: override(rename=_json_name(field)) for field in fields(kind)}


def _defaults_of_required(kind: Any) -> JsonObject:
    """What an older record without a field that must be there now is read as, per JSON name."""
    hints = get_type_hints(kind)
    required = {field: hints[field.name] for field in fields(kind) if field.default is NOTHING}
    plain = {field: get_origin(hint) or hint for field, hint in required.items()}
    return {_json_name(field): _EMPTY[kind] for field, kind in plain.items() if kind in _EMPTY}


_EMPTY: Mapping[Any, Any] = {
    str: "",
    int: 0,
    bool: False,
    datetime: "",
    Resources: {},
    tuple: (),
    frozenset: (),
    Mapping: {},
}
_converter = _make_converter()
