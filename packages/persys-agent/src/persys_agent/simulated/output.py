"""What a simulated workload writes: the lines of its node's journal about it.

Decided here: which happenings are lines, and when the output of a workload has ended. A simulated
workload has no output of its own, so what befalls it stands in for that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

from persys_agent.runtimes.port import LogLine
from persys_core.model.ids import WorkloadId
from persys_core.model.states import WorkloadType
from persys_core.ports.clock import Clock
from persys_core.sim.agent import AgentModel
from persys_core.sim.agent_journal import Happening, JournalEntry

__all__ = ["SimulatedOutput"]

_LOOK = timedelta(milliseconds=200)
_LINES = frozenset(
    {
        Happening.CREATED,
        Happening.STARTED,
        Happening.STOPPED,
        Happening.EXITED,
        Happening.REMOVED,
    }
)
_MACHINES = (WorkloadType.VM, WorkloadType.MICROVM)


class SimulatedOutput:
    """The output of one workload on one node."""

    def __init__(self, model: AgentModel, clock: Clock, workload_id: WorkloadId) -> None:
        self._model = model
        self._clock = clock
        self._workload_id = workload_id
        self._read = 0
        self._ended = False

    def is_there(self) -> bool:
        """Whether the node has such a workload now."""
        self._model.catch_up(self._clock.now())
        return self._model.spec_of(self._workload_id) is not None

    async def lines(self, *, tail: int, follow: bool) -> AsyncIterator[LogLine]:
        """The last ``tail`` lines, then those to come until it ends."""
        found = self._new_lines()
        for line in found[len(found) - min(tail, len(found)) :]:
            yield line
        while follow and not self._has_ended():
            await self._clock.sleep(_LOOK)
            for line in self._new_lines():
                yield line

    def _new_lines(self) -> list[LogLine]:
        self._model.catch_up(self._clock.now())
        entries = self._model.journal.entries
        new, self._read = entries[self._read :], len(entries)
        return [
            self._line(each)
            for each in new
            if each.workload_id == self._workload_id and each.what in _LINES
        ]

    def _has_ended(self) -> bool:
        return self._ended and self._model.is_at_rest(self._workload_id, self._clock.now())

    def _line(self, entry: JournalEntry) -> LogLine:
        self._ended = entry.what not in (Happening.CREATED, Happening.STARTED)
        spec = self._model.spec_of(self._workload_id)
        failed = entry.what is Happening.EXITED and entry.detail != "0"
        stream = "stderr" if failed else "stdout"
        return LogLine(
            text=_text(entry),
            stream="console" if spec and spec.type in _MACHINES else stream,
            at=entry.at + self._model.clock_offset,
        )


def _text(entry: JournalEntry) -> str:
    about = f"simulated workload {entry.workload_id}"
    match entry.what:
        case Happening.CREATED:
            return f"{about} created at revision {entry.revision_id}"
        case Happening.EXITED:
            return f"{about} exited with code {entry.detail}"
        case _:
            return f"{about} {entry.what}"
