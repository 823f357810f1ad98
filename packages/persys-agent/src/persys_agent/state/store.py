"""``AgentState``: what the agent remembers, read from memory, written to disk before it counts.

Decided here: the order of a change. What others may see is changed in memory at once, so that two
decisions never rest on the same free space; whoever has to be sure awaits the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from persys_agent.state.file import StateFile
from persys_agent.state.lock import StateError
from persys_agent.state.records import Task, Workload
from persys_core.model.ids import WorkloadId
from persys_core.model.states import WorkloadType

__all__ = ["AgentState", "Caller"]

T = TypeVar("T")
_EPOCH = "newest_epoch"
_KINDS = "kinds_used"


class Caller(Protocol):
    """Has something done with the file, in order; see ``StateThread``."""

    async def call(self, work: Callable[[StateFile], T]) -> T:
        """The result of ``work``. Raises ``StateError``."""
        ...


class AgentState:
    """The agent's memory. Every write raises ``StateError`` where the disk fails."""

    def __init__(self, file: Caller) -> None:
        self._file = file
        self._workloads: dict[WorkloadId, Workload] = {}
        self._tasks: tuple[Task, ...] = ()
        self._epoch = 0
        self._kinds: frozenset[WorkloadType] = frozenset()

    async def load(self) -> None:
        """Read the file; once, before anything else."""
        contents = await self._file.call(StateFile.load)
        self._workloads = {each.id: each for each in contents.workloads}
        self._tasks = contents.tasks
        try:
            self._epoch = int(contents.meta.get(_EPOCH, "0"))
            self._kinds = frozenset(map(WorkloadType, contents.meta.get(_KINDS, "").split()))
        except ValueError as error:
            raise StateError(
                f"the state's notes make no sense ({error}); the file is left as it is: move it"
                " away to begin without it"
            ) from error

    @property
    def loaded_tasks(self) -> tuple[Task, ...]:
        """The tasks that were in the file, oldest first."""
        return self._tasks

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that was obeyed; 0 before the first."""
        return self._epoch

    @property
    def kinds_used(self) -> frozenset[WorkloadType]:
        """Which runtimes worked on this node at some time: only these can hold something."""
        return self._kinds

    def __iter__(self) -> Iterator[Workload]:
        """Every workload in the order of ids."""
        return iter([self._workloads[name] for name in sorted(self._workloads)])

    def get(self, workload_id: WorkloadId) -> Workload | None:
        """One workload, or ``None``."""
        return self._workloads.get(workload_id)

    async def save(self, *workloads: Workload) -> None:
        """Remember these as they are now."""
        self._workloads.update((each.id, each) for each in workloads)
        await self._file.call(lambda file: file.save(workloads=workloads))

    async def drop(self, workload_id: WorkloadId) -> None:
        """Forget a workload."""
        self._workloads.pop(workload_id, None)
        await self._file.call(lambda file: file.save(without=(workload_id,)))

    async def save_tasks(self, tasks: Iterable[Task], without: Sequence[int] = ()) -> None:
        """Remember tasks, and forget those of the serials ``without``."""
        kept = tuple(tasks)
        await self._file.call(lambda file: file.save(tasks=kept, without_tasks=without))

    async def raise_epoch(self, epoch: int) -> None:
        """Remember that ``epoch`` was obeyed; an older one changes nothing."""
        if epoch > self._epoch:
            self._epoch = epoch
            await self._file.call(lambda file: file.save(meta=((_EPOCH, str(epoch)),)))

    async def add_kinds(self, kinds: frozenset[WorkloadType]) -> None:
        """Remember that these runtimes worked here."""
        if not kinds <= self._kinds:
            self._kinds |= kinds
            names = " ".join(sorted(self._kinds))
            await self._file.call(lambda file: file.save(meta=((_KINDS, names),)))
