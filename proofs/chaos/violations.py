"""A violation: which rule, when, at which revision, and which records it concerns."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen

from persys_core.ports.cluster_store import Record
from persys_core.sim.invariants import Rule

__all__ = ["Violation"]

_LONGEST = 600


@frozen
class Violation:
    """``revision`` 0: it is of the machines or of the clients, not of one revision of etcd."""

    rule: Rule
    text: str
    at: datetime
    revision: int = 0
    subjects: tuple[str, ...] = ()
    records: tuple[Record | None, ...] = field(default=(), repr=False)

    def describe(self, seed: int) -> str:
        """For people: what, when, where, and how it is replayed."""
        where = f" at revision {self.revision}" if self.revision else ""
        shown = "".join(f"\n    {str(record)[:_LONGEST]}" for record in self.records)
        return (
            f"{self.rule} ({', '.join(self.subjects)}): {self.text};"
            f" {self.at:%H:%M:%S.%f}{where}, seed {seed}{shown}"
        )
