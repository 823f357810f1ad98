"""Manifest text as a tree that keeps what was written.

Decided here: YAML and JSON syntax, double keys, anchors and their limits. A scalar keeps its text,
so that no rule of YAML 1.1 guesses a type before the schema knows which one is wanted: ``no`` stays
``no``, ``22:22`` stays ``22:22``, ``0123`` stays ``0123``. Not decided here: what a key means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from persysctl.manifest.problems import Origin, Problems

__all__ = ["MappingNode", "Node", "Scalar", "SequenceNode", "is_empty", "json_trees", "yaml_trees"]

_MAX_DEPTH = 64
_MAX_NODES = 200_000
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    _TAG + name for name in ("str", "int", "float", "bool", "timestamp", "merge", "value")
}
_NULL_TAG = _TAG + "null"
_MERGE_TAG = _TAG + "merge"
_HALF = re.compile(r"[\ud800-\udfff]")
_COLLECTION_TAGS = {_TAG + "map", _TAG + "seq"}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value as written. ``is_text``: quoted, or not like a number, a truth value or a date."""

    text: str
    is_text: bool = True
    is_null: bool = False
    line: int | None = None


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Keys in the order of the document; none of them twice."""

    entries: dict[str, Node]
    line: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    items: tuple[Node, ...]
    line: int | None = None


Node: TypeAlias = Scalar | MappingNode | SequenceNode


def is_empty(node: Node) -> bool:
    """Whether nothing was written (an empty document, a key without a value)."""
    return isinstance(node, Scalar) and node.is_null


class _RefusedError(Exception):
    """A document that is not turned into a tree."""

    def __init__(self, text: str, path: str, line: int | None) -> None:
        super().__init__(text)
        self.path = path
        self.line = line


# -------------------------------------------------------------------------- YAML


def yaml_trees(file: str, text: str, problems: Problems) -> Iterator[tuple[Origin, Node]]:
    """Each document of a YAML text that is not empty.

    A document with a forbidden construct is left out; a syntax error ends the text.
    """
    number = 0
    try:
        for number, root in enumerate(yaml.compose_all(text, Loader=yaml.SafeLoader), start=1):
            origin = Origin(file, number)
            tree = _converted(root, origin, problems)
            if tree is not None and not is_empty(tree):
                yield origin, tree
    except yaml.YAMLError as error:
        problems.add(Origin(file, number + 1), "", _yaml_fault(error), _fault_line(error))
    except RecursionError:
        problems.add(Origin(file, number + 1), "", f"nested deeper than {_MAX_DEPTH} levels")


def _converted(root: yaml.Node, origin: Origin, problems: Problems) -> Node | None:
    converter = _YamlConverter(origin, problems)
    try:
        return converter.node(root, "", 0)
    except _RefusedError as refused:
        problems.add(origin, refused.path, str(refused), refused.line)
        return None


def _yaml_fault(error: yaml.YAMLError) -> str:
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    mark = getattr(error, "problem_mark", None)
    text = ": ".join(part for part in parts if part) or str(error).splitlines()[0]
    column = f", column {mark.column + 1}" if mark else ""
    return f"not valid YAML: {text}{column}"


def _fault_line(error: yaml.YAMLError) -> int | None:
    mark = getattr(error, "problem_mark", None)
    return mark.line + 1 if mark else None


class _YamlConverter:
    """Turns the parser's nodes into ours; counts them, since an alias may repeat a whole tree."""

    def __init__(self, origin: Origin, problems: Problems) -> None:
        self._origin = origin
        self._problems = problems
        self._nodes = 0

    def node(self, node: yaml.Node, path: str, depth: int) -> Node:
        """Our node for theirs; refuses what no manifest needs."""
        line = node.start_mark.line + 1
        self._nodes += 1
        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            raise _RefusedError("too deep or too large (does an alias contain itself?)", path, line)
        match node:
            case yaml.ScalarNode():
                return self._scalar(node, path, line)
            case yaml.SequenceNode() if node.tag in _COLLECTION_TAGS:
                items = enumerate(node.value)
                return SequenceNode(
                    tuple(self.node(item, f"{path}[{i}]", depth + 1) for i, item in items), line
                )
            case yaml.MappingNode() if node.tag in _COLLECTION_TAGS:
                return MappingNode(self._entries(node, path, depth), line)
            case _:
                raise _RefusedError(f"the tag {node.tag} is not supported", path, line)

    def _scalar(self, node: yaml.ScalarNode, path: str, line: int) -> Scalar:
        if node.tag == _NULL_TAG:
            return Scalar("", is_null=True, is_text=False, line=line)
        if node.tag not in _PLAIN_TAGS:
            raise _RefusedError(f"the tag {node.tag} is not supported", path, line)
        _check_characters(node.value, path, line)
        return Scalar(str(node.value), is_text=node.tag == _TAG + "str", line=line)

    def _entries(self, node: yaml.MappingNode, path: str, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                self._merge(value_node, merged, path, depth)
                continue
            key = self._key(key_node, path)
            below = _join(path, key)
            if key in entries:
                self._problems.add(
                    self._origin, below, "this key stands here twice", _line(key_node)
                )
            entries[key] = self.node(value_node, below, depth + 1)
        return {**merged, **entries}

    def _merge(self, node: yaml.Node, into: dict[str, Node], path: str, depth: int) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise _RefusedError("'<<' takes a mapping or a list of mappings", path, _line(node))
            tree = self.node(source, path, depth + 1)
            assert isinstance(tree, MappingNode)
            into.update({key: value for key, value in tree.entries.items() if key not in into})

    def _key(self, node: yaml.Node, path: str) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag == _NULL_TAG:
            raise _RefusedError("a key must be a plain word", path, _line(node))
        _check_characters(node.value, path, _line(node))
        return str(node.value)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _check_characters(text: str, path: str, line: int | None) -> None:
    """Escapes can spell halves of characters, which can be neither sent nor printed."""
    if _HALF.search(text):
        escape = "half a character (an escape from \\ud800 to \\udfff without its other half)"
        raise _RefusedError(f"holds {escape}", path, line)


# -------------------------------------------------------------------------- JSON


class _Pairs(list[tuple[str, object]]):
    """The members of one JSON object, double ones included."""


class _Number(str):
    """A JSON number, or NaN and Infinity, as written."""

    __slots__ = ()


def json_trees(file: str, text: str, problems: Problems) -> Iterator[tuple[Origin, Node]]:
    """Each document of a text of JSON values, one after the other.

    Raises ``json.JSONDecodeError`` where the text is not JSON.
    """
    decoder = json.JSONDecoder(
        object_pairs_hook=_Pairs, parse_float=_Number, parse_int=_Number, parse_constant=_Number
    )
    position, number = _next(text, 0), 0
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except RecursionError:
            problems.add(Origin(file, number + 1), "", f"nested deeper than {_MAX_DEPTH} levels")
            return
        number += 1
        origin = Origin(file, number)
        try:
            yield origin, _from_json(value, origin, problems, "")
        except _RefusedError as refused:
            problems.add(origin, refused.path, str(refused))
        position = _next(text, end)


def _next(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n\ufeff":
        position += 1
    return position


def _from_json(
    value: object, origin: Origin, problems: Problems, path: str, depth: int = 0
) -> Node:
    if depth > _MAX_DEPTH:
        raise _RefusedError(f"nested deeper than {_MAX_DEPTH} levels", path, None)
    match value:
        case None:
            return Scalar("", is_null=True, is_text=False)
        case bool():
            return Scalar("true" if value else "false", is_text=False)
        case _Number():
            return Scalar(str(value), is_text=False)
        case str():
            _check_characters(value, path, None)
            return Scalar(value)
        case _Pairs():
            return MappingNode(_json_entries(value, origin, problems, path, depth))
        case list():
            items = enumerate(value)
            return SequenceNode(
                tuple(
                    _from_json(item, origin, problems, f"{path}[{index}]", depth + 1)
                    for index, item in items
                )
            )
        case _:
            raise AssertionError(f"the JSON decoder made a {type(value).__name__}")


def _json_entries(
    pairs: _Pairs, origin: Origin, problems: Problems, path: str, depth: int
) -> dict[str, Node]:
    entries: dict[str, Node] = {}
    for key, value in pairs:
        _check_characters(key, path, None)
        below = _join(path, key)
        if key in entries:
            problems.add(origin, below, "this key stands here twice")
        entries[key] = _from_json(value, origin, problems, below, depth + 1)
    return entries
