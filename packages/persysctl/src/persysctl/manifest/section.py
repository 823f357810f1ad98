"""Reading one mapping of a document key by key, so that every error in it is found.

Decided here: how a value becomes a text, a number, a truth value or a list, and the words of the
error where it does not. A reader asks for the keys that it knows; when the section ends, the keys
nobody asked for are errors. Not decided here: which keys there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from persysctl.manifest.problems import Origin, Problems
from persysctl.manifest.tree import MappingNode, Node, Scalar, SequenceNode, is_empty
from persysctl.suggest import did_you_mean, nearest

__all__ = ["Item", "Section"]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Item:
    """One node of a document, with its path and the list that takes its problems."""

    node: Node
    origin: Origin
    path: str
    problems: Problems

    def refuse(self, text: str) -> None:
        """Take note that this value is wrong."""
        self.problems.add(self.origin, self.path, text, self.node.line)

    def below(self, node: Node, step: str) -> Item:
        """The item for a value inside this one."""
        path = f"{self.path}{step}" if self.path else step.removeprefix(".")
        return Item(node, self.origin, path, self.problems)

    def text(self) -> str | None:
        """The text as written; ``None``, with a problem, for a list, a mapping or nothing."""
        if not isinstance(self.node, Scalar):
            self.refuse(f"must be a single value, not {_kind(self.node)}")
            return None
        if self.node.is_null:
            self.refuse("has no value; write '' for an empty text or leave the key out")
            return None
        return self.node.text

    def parsed(self, parse: Callable[[str], int]) -> int | None:
        """What ``parse`` makes of the text; its ValueError becomes the problem."""
        text = self.text()
        if text is None:
            return None
        if _is_truth_value(self.node):
            self.refuse(f"is the truth value {text}; a quantity is wanted")
            return None
        try:
            return parse(text)
        except ValueError as error:
            self.refuse(str(error))
            return None

    def integer(self, low: int, high: int) -> int | None:
        """A whole number from ``low`` to ``high``, written in plain digits."""
        text = self.text()
        if text is None:
            return None
        if _INTEGER.match(text) is None or not low <= int(text) <= high:
            self.refuse(f"{_shown(text)} is not a whole number from {low} to {high}")
            return None
        return int(text)

    def section(self) -> Section | None:
        """This value as a mapping to read key by key."""
        if isinstance(self.node, MappingNode):
            return Section(self, self.node)
        self.refuse(f"must be a mapping of keys, not {_kind(self.node)}")
        return None


@dataclass(slots=True)
class Section:
    """One mapping. Use as a context manager: unknown keys are told of at its end."""

    item: Item
    node: MappingNode
    _asked: set[str] = field(default_factory=set)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._tell_unknown_keys()

    def child(self, key: str) -> Item | None:
        """The value under ``key``; ``None`` where the key is absent."""
        self._asked.add(key)
        node = self.node.entries.get(key)
        return None if node is None else self.item.below(node, f".{key}")

    def has(self, key: str) -> bool:
        """Whether the key is written with a value."""
        node = self.node.entries.get(key)
        return node is not None and not is_empty(node)

    def require(self, key: str, example: str) -> None:
        """Refuse the section where ``key`` is absent."""
        self._asked.add(key)
        if key not in self.node.entries:
            self.item.refuse(f"{key} is missing; write for example {key}: {example}")

    def text(self, key: str) -> str:
        """The text under ``key``; empty where absent or wrong."""
        child = self.child(key)
        return (child.text() or "") if child else ""

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One word of ``choices``, in any case; empty where absent or wrong."""
        child = self.child(key)
        given = child.text() if child else None
        if child is None or given is None:
            return ""
        by_lower = {choice.lower(): choice for choice in choices}
        if given.lower() in by_lower:
            return by_lower[given.lower()]
        hint = did_you_mean(given, choices)
        child.refuse(f"{_shown(given)} is not accepted; write one of {', '.join(choices)}{hint}")
        return ""

    def flag(self, key: str) -> bool:
        """``true`` or ``false``; false where absent or wrong."""
        child = self.child(key)
        if child is None:
            return False
        text = child.text()
        if text is None:
            return False
        if not _is_truth_value(child.node) or text.lower() not in ("true", "false"):
            child.refuse(
                f"{_shown(text)} is not a truth value; write true or false, without quotes"
            )
        return text.lower() == "true"

    def quantity(self, key: str, parse: Callable[[str], int]) -> int:
        """What ``parse`` makes of the text; 0 where absent or wrong."""
        child = self.child(key)
        return (child.parsed(parse) or 0) if child else 0

    def integer(self, key: str, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``; 0 where absent or wrong."""
        child = self.child(key)
        return (child.integer(low, high) or 0) if child else 0

    def items(self, key: str) -> list[Item]:
        """The entries of the list under ``key``; none where absent, empty or wrong."""
        child = self.child(key)
        if child is None or is_empty(child.node):
            return []
        if not isinstance(child.node, SequenceNode):
            child.refuse(f"must be a list, not {_kind(child.node)}")
            return []
        return [child.below(node, f"[{index}]") for index, node in enumerate(child.node.items)]

    def pairs(self, key: str) -> dict[str, str]:
        """A mapping of names to texts; none where absent, empty or wrong."""
        child = self.child(key)
        if child is None or is_empty(child.node):
            return {}
        if not isinstance(child.node, MappingNode):
            child.refuse(f"must be a mapping of names to texts, not {_kind(child.node)}")
            return {}
        found = {
            name: child.below(node, f".{name}").text() for name, node in child.node.entries.items()
        }
        return {name: text for name, text in found.items() if text is not None}

    def _tell_unknown_keys(self) -> None:
        for key, node in self.node.entries.items():
            if key in self._asked:
                continue
            known = ", ".join(sorted(self._asked))
            match = nearest(key, self._asked)
            hint = f"did you mean {match!r}?" if match else f"known here are {known}"
            self.item.below(node, f".{key}").refuse(f"unknown key; {hint}")


def _kind(node: Node) -> str:
    match node:
        case MappingNode():
            return "a mapping"
        case SequenceNode():
            return "a list"
        case Scalar(is_null=True):
            return "nothing"
        case Scalar():
            return f"the single value {_shown(node.text)}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _is_truth_value(node: Node) -> bool:
    """Whether YAML or JSON would read an unquoted true, false, yes, no, on or off here."""
    words = ("true", "false", "yes", "no", "on", "off")
    return isinstance(node, Scalar) and not node.is_text and node.text.lower() in words
