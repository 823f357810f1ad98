"""Resources as a named vector of non-negative integers.

A dimension is a name (``cpu``, ``memory``, ``disk``, ``disk:<pool>``; GPUs join as further
names) with a fixed unit. Nothing here knows what a node or a workload is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from attrs import field, frozen

__all__ = ["CPU", "DISK", "MAX_AMOUNT", "MEMORY", "Resources", "pool_dimension", "unit_of"]

CPU = "cpu"
MEMORY = "memory"
DISK = "disk"
_POOL_PREFIX = "disk:"
_UNITS = {CPU: "millicores", MEMORY: "MB", DISK: "GB"}

MAX_AMOUNT: Mapping[str, int] = {CPU: 10**8, MEMORY: 10**10, DISK: 10**9}
"""Largest amount that a request or a node may name per dimension; beyond it is a unit error."""


def pool_dimension(pool: str) -> str:
    """The dimension that counts the disk space of one named storage pool, in GB."""
    return _POOL_PREFIX + pool


def unit_of(dimension: str) -> str:
    """The unit that amounts of ``dimension`` are given in, as shown to people."""
    if dimension.startswith(_POOL_PREFIX):
        return _UNITS[DISK]
    return _UNITS.get(dimension, "units")


def _without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in sorted(amounts.items()) if amount}


@frozen
class Resources:
    """An immutable vector; a dimension that is not named counts as zero.

    Equal vectors compare equal whatever the order or the zeros they were built from. Subtraction
    may go below zero: a node found above its capacity has negative free resources, and hiding
    that would hide the fault.
    """

    amounts: Mapping[str, int] = field(factory=dict, converter=_without_zeros)

    @classmethod
    def of(cls, *, cpu_millicores: int = 0, memory_mb: int = 0, disk_gb: int = 0) -> Self:
        """The vector of the three dimensions that every node has."""
        return cls({CPU: cpu_millicores, MEMORY: memory_mb, DISK: disk_gb})

    @classmethod
    def total(cls, parts: Iterable[Resources]) -> Self:
        """The sum of ``parts``; the zero vector where there are none."""
        sums: dict[str, int] = {}
        for part in parts:
            for name, amount in part.amounts.items():
                sums[name] = sums.get(name, 0) + amount
        return cls(sums)

    @property
    def cpu_millicores(self) -> int:
        return self.amounts.get(CPU, 0)

    @property
    def memory_mb(self) -> int:
        return self.amounts.get(MEMORY, 0)

    @property
    def disk_gb(self) -> int:
        return self.amounts.get(DISK, 0)

    def get(self, dimension: str) -> int:
        """The amount of one dimension; 0 where it is not named."""
        return self.amounts.get(dimension, 0)

    def __add__(self, other: Resources) -> Resources:
        return Resources.total((self, other))

    def __sub__(self, other: Resources) -> Resources:
        names = self.amounts.keys() | other.amounts.keys()
        return Resources({name: self.get(name) - other.get(name) for name in names})

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self.amounts.items())

    def __bool__(self) -> bool:
        return bool(self.amounts)

    def __hash__(self) -> int:
        return hash(tuple(self.amounts.items()))

    def shortfalls(self, free: Resources) -> tuple[str, ...]:
        """The dimensions in which this request asks for more than ``free`` holds.

        A dimension that is not asked for never falls short, even where ``free`` is negative.
        """
        return tuple(name for name, asked in self.amounts.items() if asked > free.get(name))

    def fits_in(self, free: Resources) -> bool:
        """Whether every asked dimension is covered by ``free``."""
        return not self.shortfalls(free)

    def larger(self, other: Resources) -> Resources:
        """The larger amount of both, per dimension (what a pending resize keeps reserved)."""
        names = self.amounts.keys() | other.amounts.keys()
        return Resources({name: max(self.get(name), other.get(name)) for name in names})
