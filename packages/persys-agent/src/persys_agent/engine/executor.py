"""``Executor``: carries out one operation on one workload.

Decided here: the steps of an apply and of a delete, and what a failure leaves behind. Each step is
idempotent, so an operation that was cut off anywhere is simply begun again. Nothing is forgotten
and no data is removed where a runtime or a driver did not say that it did as asked.

Callers see to it that no two operations of one workload run at once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from attrs import evolve, field, frozen

from persys_agent.engine.admission import Room, decide_admission
from persys_agent.engine.backends import Backends
from persys_agent.engine.failures import (
    UNAVAILABLE,
    OperationError,
    Step,
    asked,
    cut_off,
    no_runtime,
    silent_runtime,
    unreadable,
)
from persys_agent.engine.inventory import Inventory, Seen, Unanswered
from persys_agent.engine.port_wait import PortWait
from persys_agent.engine.repair import Repair, is_completed, is_same
from persys_agent.engine.rows import Rows
from persys_agent.engine.volumes import Volumes, missing_from, moved
from persys_agent.engine.wishes import Wish, spec_kept, wish_kept
from persys_agent.runtimes.port import (
    AttachedVolume,
    Creation,
    Instance,
    Order,
    Runtime,
)
from persys_agent.specs import BadSpecError
from persys_agent.state.records import Condition, Task, TaskKind, Workload
from persys_agent.state.store import AgentState
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState as Observed
from persys_core.model.resources import Resources
from persys_core.model.secrets import scrubbed
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.clock import Clock

__all__ = ["Executor", "Limits"]

# A runtime that hangs must not hold a workload's line up for ever.
_CREATE = timedelta(hours=1)
_START = _REMOVE = timedelta(minutes=10)
_STOP_MORE = timedelta(minutes=5)
_RUNNING = DesiredState.RUNNING
_RUNS = (Observed.RUNNING, Observed.PENDING)


@frozen
class Limits:
    """``capacity`` gives what the node has now, ``reserved`` is what its host keeps. ``grace``:
    how long a workload has to end when it is told to."""

    capacity: Callable[[], Resources]
    reserved: Resources = Resources()
    grace: timedelta = field(default=timedelta(seconds=30))


class Executor:
    """``may_start``: whether work of this spec may run now (see ``fence``). ``is_busy``: whether
    a task of a workload is open."""

    def __init__(
        self,
        state: AgentState,
        backends: Backends,
        inventory: Inventory,
        clock: Clock,
        limits: Limits,
        *,
        may_start: Callable[[WorkloadSpec], bool] = lambda _: True,
        is_busy: Callable[[WorkloadId], bool] = lambda _: False,
    ) -> None:
        self._state = state
        self._rows = Rows(state, clock)
        self._backends = backends
        self._inventory = inventory
        self._limits = limits
        self._may_start = may_start
        self._volumes = Volumes(backends)
        self._ports = PortWait(self._rows, clock, is_busy)

    @property
    def promised(self) -> Resources:
        """The sum of what the workloads that run, or are about to, were admitted with."""
        return self._rows.promised()

    async def carry_out(self, task: Task) -> str:
        """Do what a task asks; returns its error text, empty for success."""
        is_apply = task.kind is TaskKind.APPLY
        verb = "apply" if is_apply else "delete"
        try:
            if is_apply:
                await self._apply(wish_kept(task.request), task.created_at)
            else:
                await self._delete(task.workload_id, task.delete_volumes)
        except BadSpecError as error:
            return await self._failed(task, verb, unreadable(task.workload_id, str(error)))
        except OperationError as error:
            return await self._failed(task, verb, error)
        return ""

    async def _failed(self, task: Task, verb: str, error: OperationError) -> str:
        await self._rows.fail(task.workload_id, verb, error)
        text = scrubbed(str(error), self._rows.secrets(task.workload_id))
        return f"failed to {verb} workload {task.workload_id}: {text}"

    async def repair(self, workload_id: WorkloadId, repair: Repair) -> bool:
        """Bring a workload back to what it should be; false where that failed."""
        row = self._rows.get(workload_id)
        if row is None:
            return True
        try:
            await self._repair(row, repair)
        except OperationError as error:
            await self._rows.fail(
                workload_id, "delete" if repair is Repair.DELETE else "repair", error
            )
            return False
        return True

    async def fence(self, workload_id: WorkloadId, condition: Condition, grace: timedelta) -> None:
        """Stop exclusive work that may run elsewhere by now; it waits for a new apply.

        Raises ``OperationError`` where the runtime cannot; nothing is noted then.
        """
        row = self._rows.get(workload_id)
        if row is not None:
            await self.halt(row, grace)
            await self._rows.change(
                row.id, lambda now: evolve(now, is_settled=False, condition=condition)
            )

    async def halt(self, row: Workload, grace: timedelta) -> None:
        """Stop what runs, whatever else is being done with it. Raises ``OperationError``."""
        await self._stop(row, grace)

    # --- apply

    async def _apply(self, wish: Wish, accepted_at: datetime) -> None:
        row = self._rows.get(wish.workload_id)
        if row is None or not await self._was_desire_alone(row, wish, accepted_at):
            await self._bring_about(wish)

    async def _was_desire_alone(self, row: Workload, wish: Wish, accepted_at: datetime) -> bool:
        """Where the workload is there as wished, only start or stop it."""
        is_known = (row.revision_id, row.spec_hash) == (wish.revision_id, wish.spec_hash)
        if not is_known or row.desired_state is DesiredState.DELETED or not row.is_settled:
            return False
        seen = self._answered(row.id, await self._inventory.see(row.type, row.id))
        if seen is None or not is_same(row, seen):
            return False
        if wish.desired_state is DesiredState.STOPPED:
            await self._wants(row, wish)
            await self._stop(row, self._limits.grace)
        elif seen.state not in _RUNS and not _is_done(row, wish, seen, accepted_at):
            await self._run_again(row, wish)
        await self._wants(row, wish)
        await self._rows.settle(row.id)
        return True

    async def _run_again(self, row: Workload, wish: Wish) -> None:
        """Start what was to rest. That it is to run is noted after that, so that an agent that is
        killed in between neither forgets the start nor takes the old end for a new one."""
        try:
            await self._admit(wish)
            await self._start_again(row, wish)
        except OperationError:
            await self._wants(row, wish)
            raise

    async def _wants(self, row: Workload, wish: Wish) -> None:
        await self._rows.change(row.id, lambda now: evolve(now, desired_state=wish.desired_state))

    async def _bring_about(self, wish: Wish) -> None:
        old = self._rows.get(wish.workload_id)
        if old is not None and old.type is not wish.spec.type:
            await self._remove(old.type, old.id, with_data=False)
        row = await self._rows.take(wish)
        runtime = self._runtime(row.id, row.type)
        await self._admit(wish)
        before = row.attached
        volumes = await self._volumes.attach(row.id, wish.spec, before)
        held = (*missing_from(volumes, before), *volumes)
        await self._rows.change(row.id, lambda now: evolve(now, attached=held))
        creation: Creation | None = None
        try:
            if moved(before, volumes):
                await self._remove(row.type, row.id, with_data=False)
            creation = await self._create(runtime, wish, volumes)
            await self._reach(creation, row, wish)
        except OperationError:
            await self._undo(row, volumes, creation)
            raise
        await self._detach_unused(row.id, held, volumes)
        await self._rows.settle(row.id)

    async def _admit(self, wish: Wish) -> None:
        if wish.desired_state is not _RUNNING:
            return
        others = self._rows.promised(without=wish.workload_id)
        room = Room(self._limits.capacity(), self._limits.reserved, others)
        if refusal := decide_admission(wish.requested, room):
            raise OperationError(
                "RESOURCE_QUOTA_EXCEEDED",
                "Insufficient system resources to admit workload",
                wish.workload_id,
                cause=refusal,
            )
        # From here on others find the room taken.
        await self._rows.sees(wish.workload_id, Observed.PENDING)

    async def _create(
        self, runtime: Runtime, wish: Wish, volumes: tuple[AttachedVolume, ...]
    ) -> Creation:
        order = Order(wish.workload_id, wish.revision_id, wish.spec_hash, wish.spec, volumes)
        step = Step("CREATE_FAILED", "Failed to create workload in runtime", _CREATE)
        return await asked(step, wish.workload_id, runtime.create(order))

    async def _reach(self, creation: Creation, row: Workload, wish: Wish) -> None:
        """Run what was made, or stop what was found running and should not."""
        if wish.desired_state is _RUNNING:
            if creation is Creation.ADOPTED and await self._has_ended_well(row, wish):
                return
            await self._start(row.id, row.type, wish.spec)
        elif creation is Creation.ADOPTED:
            await self._stop(row, self._limits.grace)

    async def _has_ended_well(self, row: Workload, wish: Wish) -> bool:
        """Whether a job that was begun before the agent was cut off is done: it runs once."""
        if row.condition is not None:
            return False
        seen = self._answered(row.id, await self._inventory.see(row.type, row.id))
        return seen is not None and is_completed(seen, wish.spec)

    async def _undo(
        self,
        row: Workload,
        volumes: tuple[AttachedVolume, ...],
        creation: Creation | None,
    ) -> None:
        """Take back what this operation made. Where the runtime is silent, its volumes stay."""
        if creation is Creation.ADOPTED or (creation is None and await self._may_be_there(row)):
            return
        if creation is not None:
            try:
                await self._remove(row.type, row.id, with_data=False)
            except OperationError:
                return
        await self._volumes.undo(row.id, volumes, row.attached)
        await self._rows.change(row.id, lambda now: evolve(now, attached=row.attached))

    async def _may_be_there(self, row: Workload) -> bool:
        """Whether an instance of this very revision may have its volumes: one whose record was
        lost, or one that a silent runtime was told to make."""
        seen = await self._inventory.see(row.type, row.id)
        return isinstance(seen, Unanswered) or (seen is not None and is_same(row, seen))

    async def _detach_unused(
        self,
        workload_id: WorkloadId,
        held: tuple[AttachedVolume, ...],
        volumes: tuple[AttachedVolume, ...],
    ) -> None:
        """Let go of volumes that only an older revision had."""
        if held != volumes:
            await self._volumes.undo(workload_id, held, volumes)
            await self._rows.change(workload_id, lambda now: evolve(now, attached=volumes))

    # --- delete

    async def _delete(self, workload_id: WorkloadId, with_volumes: bool) -> None:
        row = self._rows.get(workload_id)
        if row is None:
            await self._delete_unknown(workload_id, with_volumes)
            return
        with_volumes = with_volumes or row.delete_volumes
        await self._rows.change(
            row.id,
            lambda now: evolve(
                now, desired_state=DesiredState.DELETED, delete_volumes=with_volumes
            ),
        )
        try:
            await self._stop(row, self._limits.grace)
        except OperationError as error:
            if error.reason == UNAVAILABLE:
                raise
        await self._remove(row.type, row.id, with_data=with_volumes)
        volumes = {each.volume.name: each.volume for each in row.attached}
        spec = spec_kept(row)
        volumes.update((each.name, each) for each in (spec.managed_volumes if spec else ()))
        for volume in volumes.values():
            await self._volumes.detach(row.id, volume)
        if with_volumes:
            for volume in volumes.values():
                await self._volumes.delete_data(row.id, volume)
        await self._rows.drop(row.id)

    async def _delete_unknown(self, workload_id: WorkloadId, with_data: bool) -> None:
        """What has no record may still be ours, of a time before the state was lost."""
        for kind in sorted(self._state.kinds_used):
            await self._remove(kind, workload_id, with_data=with_data)

    async def _remove(
        self, kind: WorkloadType, workload_id: WorkloadId, *, with_data: bool
    ) -> None:
        runtime = self._runtime(workload_id, kind)
        step = Step("DELETE_FAILED", "Failed to delete workload from runtime", _REMOVE)
        await asked(step, workload_id, runtime.remove(workload_id, with_data=with_data))

    # --- what all of them need

    async def _repair(self, row: Workload, repair: Repair) -> None:
        match repair:
            case Repair.NOTHING:
                return
            case Repair.START:
                await self._start_again(row, wish_kept(row.request))
            case Repair.RECREATE:
                wish = wish_kept(row.request)
                await self._bring_about(evolve(wish, desired_state=row.desired_state))
                return
            case Repair.STOP:
                await self._stop(row, self._limits.grace)
            case Repair.DELETE:
                await self._delete(row.id, row.delete_volumes)
                return
        await self._rows.settle(row.id)

    async def _start_again(self, row: Workload, wish: Wish) -> None:
        """Start what has stopped. Its volumes are attached first: where the machine went down,
        nothing is mounted any more, and a device may have another name."""
        if wish.spec.managed_volumes:
            volumes = await self._volumes.attach(row.id, wish.spec, row.attached)
            await self._rows.change(row.id, lambda now: evolve(now, attached=volumes))
            if moved(row.attached, volumes):
                await self._remove(row.type, row.id, with_data=False)
                await self._create(self._runtime(row.id, row.type), wish, volumes)
        await self._start(row.id, row.type, wish.spec)

    async def _start(self, workload_id: WorkloadId, kind: WorkloadType, spec: WorkloadSpec) -> None:
        step = Step("START_FAILED", "Failed to start workload", _START)

        async def attempt() -> None:
            if not self._may_start(spec):  # asked each time: the cut-off may come amid the waits
                raise cut_off(workload_id)
            await asked(step, workload_id, self._runtime(workload_id, kind).start(workload_id))

        await self._ports.out(workload_id, attempt)
        row = self._rows.get(workload_id)
        if row is not None and row.has_ended:
            await self._rows.change(workload_id, lambda now: evolve(now, has_ended=False))

    async def _stop(self, row: Workload, grace: timedelta) -> None:
        step = Step("STOP_FAILED", "Failed to stop workload", grace + _STOP_MORE)
        await asked(step, row.id, self._runtime(row.id, row.type).stop(row.id, grace))

    def _runtime(self, workload_id: WorkloadId, kind: WorkloadType) -> Runtime:
        runtime = self._backends.runtimes.get(kind)
        if runtime is None:
            raise no_runtime(workload_id, kind)
        return runtime

    def _answered(self, workload_id: WorkloadId, seen: Seen) -> Instance | None:
        if isinstance(seen, Unanswered):
            raise silent_runtime(workload_id, seen.cause)
        return seen


def _is_done(row: Workload, wish: Wish, seen: Instance, accepted_at: datetime) -> bool:
    """Whether a job that is to run has run already: it was to run before, or it ran since the wish
    was accepted, by an agent that was killed then."""
    if not is_completed(seen, wish.spec):
        return False
    ran_since = seen.started_at is not None and seen.started_at >= accepted_at
    return row.desired_state is _RUNNING or ran_since
