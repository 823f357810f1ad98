"""What happened on a simulated node, in order: the evidence that invariants are checked against.

Decided here: which happenings are worth a line. Reads (status, list) are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import RevisionId, WorkloadId

__all__ = ["Happening", "Journal", "JournalEntry"]


class Happening(StrEnum):
    """What a line of the journal says."""

    APPLY = "apply"
    """An ApplyWorkload call arrived (whatever came of it)."""
    DELETE = "delete"
    """A DeleteWorkload call arrived."""
    REFUSED = "refused"
    """A call was turned away; the detail says why."""
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    EXITED = "exited"
    REMOVED = "removed"
    VOLUME_DELETED = "volume_deleted"
    BOOTED = "booted"
    HALTED = "halted"
    WIPED = "wiped"


@frozen
class JournalEntry:
    """One line; ``epoch`` is that of the call, 0 where there was none."""

    at: datetime
    what: Happening
    workload_id: WorkloadId = ""
    revision_id: RevisionId = ""
    detail: str = ""
    epoch: int = 0


class Journal:
    """Append-only. ``counts`` has one counter per kind of line and per kind of call."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.counts: Counter[str] = Counter()

    def write(
        self,
        at: datetime,
        what: Happening,
        workload_id: WorkloadId = "",
        revision_id: RevisionId = "",
        *,
        detail: str = "",
        epoch: int = 0,
    ) -> None:
        """Add a line."""
        self.counts[what] += 1
        self.entries.append(JournalEntry(at, what, workload_id, revision_id, detail, epoch))

    def count(self, call: str) -> None:
        """Count a call that leaves no line (``status``, ``list``, ``actions``, ``heartbeat``)."""
        self.counts[call] += 1

    def of(self, workload_id: WorkloadId, *what: Happening) -> Iterator[JournalEntry]:
        """The lines about one workload, all kinds or only the given ones."""
        for entry in self.entries:
            if entry.workload_id == workload_id and (not what or entry.what in what):
                yield entry
