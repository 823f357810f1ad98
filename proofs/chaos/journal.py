"""What the machines' journals say, line by line, and how a line is written.

A line of the file is JSON: a happening on a node, or (``upto``) the instant up to which every
node's journal is complete.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from attrs import define, frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.sim.agent_journal import Happening, JournalEntry

__all__ = ["JournalFile", "JournalLine", "text_of", "upto_text"]


@frozen
class JournalLine:
    """A happening on a node. ``epoch`` is that of the call, 0 where there was none."""

    node_id: NodeId
    at: datetime
    what: Happening
    workload_id: WorkloadId = ""
    revision_id: RevisionId = ""
    detail: str = ""
    epoch: int = 0


def text_of(node_id: NodeId, entry: JournalEntry) -> str:
    """One line of the file."""
    return json.dumps(
        {
            "node": node_id,
            "at": entry.at.isoformat(),
            "what": entry.what,
            "workload": entry.workload_id,
            "revision": entry.revision_id,
            "detail": entry.detail,
            "epoch": entry.epoch,
        }
    )


def upto_text(at: datetime) -> str:
    """The line that says that nothing before ``at`` will follow."""
    return json.dumps({"upto": at.isoformat()})


@define(eq=False)
class JournalFile:
    """Reads a file that is still being written; ``upto`` is how far it is complete."""

    path: Path
    upto: datetime | None = None
    _offset: int = 0
    _rest: bytes = b""

    def read(self) -> list[JournalLine]:
        """What was written since the last reading."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as source:
            source.seek(self._offset)
            chunk = source.read()
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = [self._parsed(line) for line in lines if line]
        return [line for line in found if line is not None]

    def _parsed(self, line: bytes) -> JournalLine | None:
        value = json.loads(line)
        if "upto" in value:
            self.upto = datetime.fromisoformat(value["upto"])
            return None
        return JournalLine(
            value["node"],
            datetime.fromisoformat(value["at"]),
            Happening(value["what"]),
            value["workload"],
            value["revision"],
            value["detail"],
            value["epoch"],
        )
