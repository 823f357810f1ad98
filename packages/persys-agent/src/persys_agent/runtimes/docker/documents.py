"""Reading of the Engine's JSON: what is absent or of another kind is empty, never an error.

The Engine leaves out what does not apply, and versions differ in what that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

__all__ = ["Document", "at", "document", "flag", "instant", "items", "number", "text", "texts"]

Document: TypeAlias = Mapping[str, object]

_NEVER_YEAR = 1
"""The year of the Engine's zero time, which stands for *never*."""


def at(source: Document, *path: str) -> object:
    """The value at ``path``; ``None`` where there is none."""
    value: object = source
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def document(source: Document, *path: str) -> Document:
    """The object at ``path``."""
    value = at(source, *path)
    return value if isinstance(value, Mapping) else {}


def items(source: Document, *path: str) -> Sequence[Document]:
    """The objects of the list at ``path``."""
    value = at(source, *path)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def text(source: Document, *path: str) -> str:
    """The text at ``path``."""
    value = at(source, *path)
    return value if isinstance(value, str) else ""


def texts(source: Document, *path: str) -> dict[str, str]:
    """The texts of the object at ``path``, by name."""
    return {
        name: value for name, value in document(source, *path).items() if isinstance(value, str)
    }


def number(source: Document, *path: str) -> int:
    """The integer at ``path``, also where it is written as text."""
    value = at(source, *path)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) else 0


def flag(source: Document, *path: str) -> bool:
    """Whether there is a ``true`` at ``path``."""
    return at(source, *path) is True


def instant(source: Document, *path: str) -> datetime | None:
    """The time at ``path``; ``None`` for the Engine's *never* and for what is no time."""
    try:
        value = datetime.fromisoformat(text(source, *path))
    except ValueError:
        return None
    if value.year == _NEVER_YEAR or value.tzinfo is None:
        return None
    return value.astimezone(UTC)
