"""``LeaseFence``: a node that cannot renew its lease stops what must not run twice.

Decided here: what is exclusive (a managed volume that only one node may write to, as
``persys_core.volumes.wishes`` says: not local ones, and without an access mode yes), when it is
stopped (``stop_after`` beyond the end of the last lease, on the monotonic clock), and that it runs
again only after a heartbeat was acknowledged *and* the scheduler applied it anew, since it may
have been moved meanwhile.

The end of the lease is reckoned from when the acknowledged beat was *sent*, and is what the store
has confirmed, so it is early rather than late. A process that is not there cannot stop anything:
whoever runs the agent restarts it. It then goes on with the lease that it had (``LeaseMemory``);
on a machine that was restarted it has none, and exclusive work that came up by itself is stopped
until the node was heard.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Protocol

import structlog

from persys_agent.engine.failures import OperationError, cut_off
from persys_agent.engine.inventory import Seen
from persys_agent.engine.wishes import spec_kept
from persys_agent.engine.works import Works
from persys_agent.runtimes.port import Instance
from persys_agent.state.records import Workload
from persys_core.model.observation import AgentState as Observed
from persys_core.model.spec import WorkloadSpec
from persys_core.ports.clock import Clock
from persys_core.volumes.wishes import is_exclusive_volume

__all__ = ["LeaseFence", "LeaseMemory", "is_exclusive"]

_LOOKS_EVERY = timedelta(seconds=2)
_GRACE = timedelta(seconds=10)


def is_exclusive(spec: WorkloadSpec) -> bool:
    """Whether two nodes that ran it at once would destroy its data."""
    return any(map(is_exclusive_volume, spec.managed_volumes))


class LeaseMemory(Protocol):
    """Where the end of the lease outlives the process, but not the machine."""

    def recall(self) -> float | None:
        """The end that was kept, on the monotonic clock; minus infinity where that clock began anew
        since, or what was kept cannot be read; ``None`` where nothing was ever kept."""
        ...

    def keep(self, ends: float) -> None:
        """Remember it. Raises nothing: who cannot keep it stops work early after a restart."""
        ...


class LeaseFence:
    """``stop_after`` ``None``: nothing is ever stopped, and nothing waits to be heard."""

    def __init__(
        self, clock: Clock, stop_after: timedelta | None, memory: LeaseMemory | None = None
    ) -> None:
        self.stop_after = stop_after
        self._clock = clock
        self._memory = memory
        self._was_heard = False
        kept = memory.recall() if memory is not None and stop_after is not None else None
        self._lease_ends = clock.monotonic() if kept is None else kept

    def heard(self, sent_at: float, lease: timedelta) -> None:
        """A beat that was sent at ``sent_at`` (monotonic) was acknowledged; from then on the node's
        lease lasts for ``lease``. None at all is no sign that anybody counts on this node."""
        self._was_heard = self._was_heard or lease > timedelta(0)
        self._lease_ends = max(self._lease_ends, sent_at + lease.total_seconds())
        if self._memory is not None and self.stop_after is not None:
            self._memory.keep(self._lease_ends)

    @property
    def is_cut_off(self) -> bool:
        """Whether exclusive work has to be stopped now."""
        if self.stop_after is None:
            return False
        return self._clock.monotonic() >= self._lease_ends + self.stop_after.total_seconds()

    def may_start(self, spec: WorkloadSpec) -> bool:
        """Whether work of this spec may be started now."""
        if self.stop_after is None or not is_exclusive(spec):
            return True
        return self._was_heard and not self.is_cut_off

    async def run(self, works: Works) -> None:
        """Watch over the lease until cancelled."""
        if self.stop_after is None:
            return
        while True:
            if self.is_cut_off:
                await self.enforce(works)
            await self._clock.sleep(_LOOKS_EVERY)

    async def enforce(self, works: Works) -> None:
        """Stop what is exclusive and runs; what could not be stopped is tried again."""
        rows = [row for row in works.state if _is_exclusive_row(row)]
        if not rows:
            return
        look = await works.inventory.look(frozenset(row.type for row in rows))
        running = [row for row in rows if _runs(look.of(row.type, row.id))]
        await asyncio.gather(*(self._stop(row, works) for row in running))

    async def _stop(self, row: Workload, works: Works) -> None:
        condition = cut_off(row.id).condition("fence", self._clock.now(), ())

        async def work() -> None:
            if self.is_cut_off:
                await works.executor.fence(row.id, condition, _GRACE)

        log = structlog.get_logger()
        try:
            if not await works.queue.exclusively(row.id, work):
                # A task has it, maybe for long; it cannot start anything, and this must not wait.
                await works.executor.halt(row, _GRACE)
            else:
                log.warning("stopped: the node's lease could not be renewed", workload=row.id)
        except OperationError as error:
            log.error("exclusive work could not be stopped", workload=row.id, error=str(error))


def _is_exclusive_row(row: Workload) -> bool:
    """By what is attached, and by what the spec says."""
    if any(is_exclusive_volume(each.volume) for each in row.attached):
        return True
    spec = spec_kept(row)
    return spec is not None and is_exclusive(spec)


def _runs(seen: Seen) -> bool:
    return isinstance(seen, Instance) and seen.state in (Observed.RUNNING, Observed.PENDING)
