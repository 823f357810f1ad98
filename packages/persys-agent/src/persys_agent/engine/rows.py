"""``Rows``: the changes that operations make to what is remembered of a workload.

Decided here: what success and failure leave behind, and that a change is always made to the row as
it is at that moment, since others note what they see in it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from attrs import evolve

from persys_agent.engine.failures import OperationError
from persys_agent.engine.view import counts_as_promised
from persys_agent.engine.wishes import Wish, spec_kept
from persys_agent.state.records import Sight, Workload
from persys_agent.state.store import AgentState
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState as Observed
from persys_core.model.resources import Resources
from persys_core.model.spec import secret_values
from persys_core.model.states import DesiredState
from persys_core.ports.clock import Clock

__all__ = ["Change", "Rows"]

Change: TypeAlias = Callable[[Workload], Workload]


class Rows:
    """The rows of one node. Every verb may raise ``StateError``."""

    def __init__(self, state: AgentState, clock: Clock) -> None:
        self._state = state
        self._clock = clock

    def get(self, workload_id: WorkloadId) -> Workload | None:
        """The row as it is now."""
        return self._state.get(workload_id)

    def promised(self, *, without: WorkloadId = "") -> Resources:
        """The sum of what the workloads that run, or are about to, were admitted with."""
        return Resources.total(
            each.requested
            for each in self._state
            if each.id != without and counts_as_promised(each)
        )

    def secrets(self, workload_id: WorkloadId) -> frozenset[str]:
        """What no text about a workload may contain."""
        row = self.get(workload_id)
        spec = spec_kept(row) if row is not None else None
        return secret_values(spec) if spec is not None else frozenset()

    async def take(self, wish: Wish) -> Workload:
        """The row of a wish that is about to be carried out; a failure has to have a place."""
        now = self._clock.now()
        old = self.get(wish.workload_id)
        made = Workload(
            id=wish.workload_id,
            type=wish.spec.type,
            revision_id=wish.revision_id,
            spec_hash=wish.spec_hash,
            desired_state=wish.desired_state,
            request=wish.request,
            requested=wish.requested,
            created_at=now,
            updated_at=now,
            sight=Sight(
                Observed.PENDING
                if wish.desired_state is DesiredState.RUNNING
                else Observed.STOPPED,
                now,
            ),
        )
        if old is not None:
            is_known = (old.revision_id, old.spec_hash) == (made.revision_id, made.spec_hash)
            made = evolve(
                made,
                created_at=old.created_at,
                attached=old.attached,
                condition=old.condition,
                sight=old.sight,
                is_settled=old.is_settled and is_known,
                has_ended=old.has_ended and is_known,
            )
        await self._state.save(made)
        return made

    async def change(self, workload_id: WorkloadId, change: Change) -> None:
        """Change a row, if there still is one."""
        row = self.get(workload_id)
        if row is not None:
            await self._state.save(evolve(change(row), updated_at=self._clock.now()))

    async def sees(self, workload_id: WorkloadId, state: Observed) -> None:
        """Note that a workload is in that state from now on."""
        sight = Sight(state, self._clock.now())
        await self.change(workload_id, lambda row: evolve(row, sight=sight))

    async def settle(self, workload_id: WorkloadId) -> None:
        """It is as it was wished: no failure stands any more."""
        await self.change(workload_id, lambda row: evolve(row, is_settled=True, condition=None))

    async def fail(self, workload_id: WorkloadId, operation: str, error: OperationError) -> None:
        """Leave the condition of an operation that failed."""
        now = self._clock.now()
        condition = error.condition(operation, now, self.secrets(workload_id))

        def failed(row: Workload) -> Workload:
            row = evolve(row, condition=condition)
            if operation != "apply":
                return row
            return evolve(row, is_settled=False, sight=Sight(Observed.FAILED, now))

        await self.change(workload_id, failed)

    async def drop(self, workload_id: WorkloadId) -> None:
        """Forget a workload."""
        await self._state.drop(workload_id)
