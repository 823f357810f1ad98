"""``LeaseFence``: a node that cannot renew its lease stops what must not run twice.

Decided here: what is exclusive (a managed volume that only one node may write to, as
``persys_core.volumes.wishes`` says: not local ones, and without an access mode yes), when it is
stopped (``stop_after`` beyond the end of the last lease, on the monotonic clock), and that it runs
again only after a heartbeat was acknowledged *and* the scheduler applied it anew, since it may
have been moved meanwhile.

The end of the lease is reckoned from when the acknowledged beat was *sent*, and for at most three
heartbeat intervals, so that wrong clocks make it end early and never late. A process that is not
there cannot stop anything: whoever runs the agent restarts it, and after a start it has been heard
by nobody and gives up after ``stop_after``.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

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

__all__ = ["LeaseFence", "is_exclusive"]

_LOOKS_EVERY = timedelta(seconds=2)
_GRACE = timedelta(seconds=10)
_INTERVALS = 3


def is_exclusive(spec: WorkloadSpec) -> bool:
    """Whether two nodes that ran it at once would destroy its data."""
    return any(map(is_exclusive_volume, spec.managed_volumes))


class LeaseFence:
    """``stop_after`` ``None``: nothing is ever stopped, and nothing waits to be heard."""

    def __init__(self, clock: Clock, stop_after: timedelta | None) -> None:
        self.stop_after = stop_after
        self._clock = clock
        self._was_heard = False
        self._lease_ends = clock.monotonic()

    def heard(self, sent_at: float, lease: timedelta, interval: timedelta) -> None:
        """A beat that was sent at ``sent_at`` (monotonic) was acknowledged with ``lease`` left."""
        length = min(max(lease, interval), interval * _INTERVALS)
        self._was_heard = True
        self._lease_ends = max(self._lease_ends, sent_at + length.total_seconds())

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
