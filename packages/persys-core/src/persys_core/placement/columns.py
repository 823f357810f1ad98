"""The containers that the columnar fleet is made of. They know nothing of nodes or placement."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from copy import copy
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ChangeLog",
    "Column",
    "FloatArray",
    "HashArray",
    "IntArray",
    "Mask",
    "Properties",
    "Property",
    "Scalar",
    "mask_of",
]

Mask: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
HashArray: TypeAlias = NDArray[np.uint64]
Scalar = TypeVar("Scalar", bound=np.generic)

_FIRST_SIZE = 64
_NO_ROWS: frozenset[int] = frozenset()
Property: TypeAlias = tuple[str, Hashable]
"""A property and one of its values, such as ``("label:disk", "ssd")``."""


class Column(Generic[Scalar]):
    """One number per row. ``values`` is the array in use; it is replaced when a row is added."""

    def __init__(self, dtype: type[Scalar], rows: int = 0) -> None:
        self._memory: NDArray[Scalar] = np.zeros(max(rows, _FIRST_SIZE), dtype)
        self.values: NDArray[Scalar] = self._memory[:rows]

    def grow(self) -> None:
        """Add a row that holds zero."""
        rows = len(self.values) + 1
        if rows > len(self._memory):
            # Doubling: a row costs constant time on average.
            self._memory = np.concatenate((self._memory, np.zeros_like(self._memory)))
        self.values = self._memory[:rows]

    def copy(self) -> Column[Scalar]:
        """A column of its own with the same numbers."""
        copied = copy(self)
        copied._memory = self.values.copy()
        copied.values = copied._memory
        return copied


class ChangeLog:
    """The rows that changed, in order, so that each reader catches up from where it stood.

    It forgets: a reader that is more than ``limit`` changes late starts anew.
    """

    def __init__(self, limit: int = 1024) -> None:
        self._limit = limit
        self._rows: list[int] = []
        self._forgotten = 0

    @property
    def position(self) -> int:
        """Where a reader stands that has seen everything."""
        return self._forgotten + len(self._rows)

    def note(self, row: int) -> None:
        """``row`` changed."""
        if len(self._rows) >= self._limit:
            self._forgotten = self.position
            self._rows.clear()
        self._rows.append(row)

    def since(self, position: int) -> IntArray | None:
        """The distinct rows that changed after ``position``; ``None``: too many, or forgotten."""
        if position < self._forgotten:
            return None
        return np.unique(np.array(self._rows[position - self._forgotten :], np.int64))


class Properties:
    """Which rows have which values of which property: an inverted index."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[Hashable, set[int]]] = {}
        self._of_row: dict[int, frozenset[Property]] = {}

    def replace(self, row: int, properties: Iterable[Property]) -> bool:
        """Let ``row`` have exactly these; whether that is a change."""
        wanted = frozenset(properties)
        had = self._of_row.get(row, frozenset())
        for name, value in wanted - had:
            self._rows.setdefault(name, {}).setdefault(value, set()).add(row)
        for name, value in had - wanted:
            self._drop(row, name, value)
        if wanted:
            self._of_row[row] = wanted
        else:
            self._of_row.pop(row, None)
        return wanted != had

    def _drop(self, row: int, name: str, value: Hashable) -> None:
        values = self._rows[name]
        values[value].discard(row)
        if not values[value]:
            del values[value]
        if not values:
            del self._rows[name]

    def rows(self, name: str, value: Hashable) -> Collection[int]:
        """The rows that have ``value``."""
        return self._rows.get(name, {}).get(value, _NO_ROWS)

    def values(self, name: str) -> Mapping[Hashable, Collection[int]]:
        """Every value that some row has, with the rows."""
        return self._rows.get(name, {})

    def of(self, row: int) -> frozenset[Property]:
        """All properties of ``row``."""
        return self._of_row.get(row, frozenset())


def mask_of(rows: Collection[int], length: int) -> Mask:
    """True at ``rows``, false elsewhere."""
    mask = np.zeros(length, np.bool_)
    mask[np.fromiter(rows, np.int64, len(rows))] = True
    return mask
