"""A Compose file as Compose reads it: variables replaced.

Decided here: what is understood of them, so that limits and dangers are looked for in what counts.
It need not be all that Compose understands: what was really made is looked at once more before it
is started (``escapes``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["replaced", "word"]

_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<word>[^}$]*+))?\})"
)


def replaced(value: object, variables: Mapping[str, str]) -> object:
    """The value with all variables in its texts replaced; keys have none. What the file has in
    several places is one object in the result too, so that aliases cannot multiply."""
    known: dict[int, object] = {}

    def of(value: object) -> object:
        if id(value) in known:
            return known[id(value)]
        if isinstance(value, str):
            return _VARIABLE.sub(lambda found: _value(found, variables), value)
        if isinstance(value, Mapping):
            mapping: dict[object, object] = {}
            known[id(value)] = mapping
            mapping.update((name, of(each)) for name, each in value.items())
            return mapping
        if isinstance(value, list):
            entries: list[object] = []
            known[id(value)] = entries
            entries.extend(map(of, value))
            return entries
        return value

    return of(value)


def word(value: object) -> str:
    """A single value as text; of a list or a mapping, which may be without end, only what it is."""
    if isinstance(value, list | Mapping | tuple | set):
        return "a list or mapping"
    return str(value)


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    if found["dollar"]:
        return "$"
    value = variables.get(found["bare"] or found["name"])
    how, word = found["how"] or "", found["word"] or ""
    is_missing = value is None or (how.startswith(":") and not value)
    if how.endswith("+"):
        return "" if is_missing else word
    return word if is_missing and how.endswith("-") else value or ""
