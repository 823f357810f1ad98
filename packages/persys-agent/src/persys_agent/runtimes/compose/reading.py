"""A Compose file as Compose reads it: variables replaced.

Decided here: what is understood of them, so that limits and dangers are looked for in what counts.
It need not be all that Compose understands: what was really made is looked at once more before it
is started (``escapes``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import yaml

__all__ = ["is_readable", "key_problem", "replaced", "word"]

_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)"
    r"|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<word>[^}$]*+))?\})"
)
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


def key_problem(root: yaml.Node | None) -> str:
    """Why some key below ``root`` could be another one for Compose: empty where none could. Other
    versions of YAML read ``on`` or ``0x1`` as text, and of two equal keys each reader takes its
    own; a service could stand behind such a key that nobody looks at."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            if problem := _problem_of_keys(node):
                return problem
            waiting.extend(value for _, value in node.value)
    return ""


def _problem_of_keys(node: yaml.MappingNode) -> str:
    found: set[str] = set()
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            return f"a key in line {line} is no text"
        if key.tag != (_MERGE if key.value == "<<" else _TEXT):
            return f'the key {key.value} in line {line} is no text: write "{key.value}"'
        if key.value in found:
            return f'the key "{key.value}" in line {line} was there before'
        found.add(key.value)
    return ""


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


def is_readable(text: str, known: Collection[str]) -> bool:
    """Whether all variables in ``text`` are known, and written as they are understood here."""

    def rest(found: re.Match[str]) -> str:
        is_known = found["dollar"] or (found["bare"] or found["name"]) in known
        return "" if is_known else found[0]

    return "$" not in _VARIABLE.sub(rest, text)


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
