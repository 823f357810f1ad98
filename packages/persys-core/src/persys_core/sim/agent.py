"""The model of a compute agent and of the machine it runs on. Pure: ``now`` is passed in.

Decided here: what each call answers. Every call catches up to its ``now``, so nothing has to tick
between calls; ``next_event_at`` says when something will happen by itself. Instants
must not go back; one that does counts as the latest seen.

Everything that happens is written to ``journal``. A machine is up, paused (the agent's process is
stopped and goes on later), halted (the process is gone, workloads run on) or off.

Size: one method per call and per thing that can happen to a machine.
"""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from enum import StrEnum, auto

from attrs import frozen

from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.sim.agent_agenda import Agenda
from persys_core.sim.agent_behaviour import FaultPlan
from persys_core.sim.agent_execution import Executor
from persys_core.sim.agent_journal import Happening, Journal
from persys_core.sim.agent_reconcile import LocalLoop
from persys_core.sim.agent_reports import NewestTask, heartbeat_report, told_at, with_newest_task
from persys_core.sim.agent_runtime import Phase, Runtime
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.agent_store import AgentStore, Row
from persys_core.sim.agent_tasks import APPLY_TASK, DELETE_TASK, AgentTask, Done, TaskQueue
from persys_core.sim.agent_usage import node_usage, workload_usage
from persys_core.sim.rng import stream

__all__ = ["AgentModel", "MachineState", "Reply"]


class MachineState(StrEnum):
    """Whether the agent's process and its machine are there."""

    UP = auto()
    PAUSED = auto()
    HALTED = auto()
    OFF = auto()


@frozen
class Reply:
    """The answer to an apply or a delete, as the agents' messages have it.

    ``accepted`` is ``applied`` or ``success``. ``task`` is set where the queue was full: the real
    call hangs until that task is finished; ask ``AgentModel.settled`` then.
    """

    accepted: bool
    message: str
    skipped: bool = False
    report: AgentReport | None = None
    task: AgentTask | None = None


class AgentModel:
    """One agent.

    Size: the six calls of the agents' service, the two of theirs to the scheduler, and the ways
    in which a machine dies and comes back; each a few lines.
    """

    def __init__(
        self,
        settings: AgentSettings,
        now: datetime,
        *,
        seed: int = 0,
        plan: FaultPlan | None = None,
    ) -> None:
        """A machine that was just switched on at ``now``. ``seed`` decides all its chance."""
        self.settings = settings
        self.journal = Journal()
        self.plan = plan or FaultPlan()
        self.state = MachineState.OFF
        self._seed = seed
        self._rng: random.Random = stream(seed, "agent", settings.node_id)
        self._now = now
        self._store = AgentStore()
        self._runtime = Runtime(self.journal)
        self.power_on(now)

    # --- the agents' service

    def apply(self, request: ApplyRequest, now: datetime) -> Reply:
        """ApplyWorkload. ``epoch`` 0 means that the caller did not send one."""
        now = self.catch_up(now)
        self.journal.write(
            now,
            Happening.APPLY,
            request.workload_id,
            request.revision_id,
            detail=request.desired_state,
            epoch=request.epoch,
        )
        if refusal := self._refusal(request):
            return self._refused(request.workload_id, request.epoch, refusal, now)
        return self._submit_apply(request, now)

    def delete(self, request: DeleteRequest, now: datetime) -> Reply:
        """DeleteWorkload."""
        now = self.catch_up(now)
        self.journal.write(now, Happening.DELETE, request.workload_id, epoch=request.epoch)
        if refusal := self._stale(request.epoch):
            return self._refused(request.workload_id, request.epoch, refusal, now)
        return self._submit_delete(request, now)

    def settled(self, task: AgentTask, now: datetime) -> Reply | None:
        """The late answer of a call that had to wait for ``task``; ``None`` while it runs."""
        self.catch_up(now)
        if not task.is_finished:
            return None
        verb, done = ("apply", "applied") if task.kind == APPLY_TASK else ("delete", "deleted")
        if task.error:
            return Reply(False, f"failed to {verb} workload: {task.error}")
        row = self._store.rows.get(task.workload_id)
        report = row.report() if row else None
        return Reply(True, f"workload {done} successfully", task.skipped, report)

    def status(self, workload_id: WorkloadId, now: datetime) -> AgentReport | None:
        """GetWorkloadStatus; ``None`` stands for the error ``status not found``."""
        now = self.catch_up(now)
        self.journal.count("status")
        row = self._store.rows.get(workload_id)
        if row:
            self._executor.refresh(row, now)
        report = with_newest_task(row.report() if row else None, self._newest(workload_id), now)
        return told_at(report, self.clock_offset) if report else None

    def list(self, now: datetime, kind: WorkloadType | None = None) -> tuple[AgentReport, ...]:
        """ListWorkloads, in the order of ids; tasks in flight do not show."""
        now = self.catch_up(now)
        self.journal.count("list")
        rows = [row for row in self._store.in_order() if kind in (None, row.spec.type)]
        for row in rows:
            self._executor.refresh(row, now)
        return tuple(told_at(row.report(), self.clock_offset) for row in rows)

    def actions(
        self, now: datetime, *, workload_id: str = "", kind: str = "", status: str = ""
    ) -> tuple[AgentTask, ...]:
        """ListActions, oldest first; empty filters let everything through."""
        self.catch_up(now)
        self.journal.count("actions")
        return tuple(
            task
            for task in self._queue.history
            if workload_id in ("", task.workload_id)
            and kind in ("", task.kind)
            and status in ("", task.status)
        )

    # --- what it says of itself

    def registration(self) -> RegisterNode:
        """What the agent registers with."""
        settings = self.settings
        return RegisterNode(
            node_id=settings.node_id,
            capacity=settings.capacity,
            endpoint=settings.endpoint,
            workload_types=settings.workload_types,
            storage_drivers=settings.storage_drivers,
            storage_pools=settings.storage_pools,
            labels=settings.labels,
            agent_version=settings.version,
            stop_after_seconds=settings.stop_after_seconds,
            boot_id=self._boot_id if settings.claims_node_id else "",
        )

    def heartbeat(self, now: datetime) -> Heartbeat:
        """The next heartbeat; old agents send neither boot id nor revisions nor usage."""
        now = self.catch_up(now)
        self.journal.count("heartbeat")
        settings = self.settings
        self._sequence += 1
        rows = self._store.in_order()
        for row in rows:
            self._executor.refresh(row, now)
        told = now + self.clock_offset
        used = tuple(
            workload_usage(self._seed, settings.node_id, found, now)
            for found in self._runtime.objects.values()
            if found.phase is Phase.RUNNING
        )
        return Heartbeat(
            node_id=settings.node_id,
            reports=tuple(
                told_at(heartbeat_report(row.report(), settings), self.clock_offset) for row in rows
            ),
            usage=node_usage(settings.node_id, used, told),
            workload_usage=used if settings.sends_usage else (),
            boot_id=self._boot_id if settings.sends_boot_id else "",
            sequence=self._sequence if settings.sends_boot_id else 0,
            sent_at=told,
        )

    @property
    def clock_offset(self) -> timedelta:
        """How far the machine's wall clock is ahead: it shows in when something is said to have
        been, not in when it happens."""
        return self._runtime.clock_offset

    # --- what somebody at the machine can do

    def set_clock(self, offset: timedelta) -> None:
        """Have the wall clock jump."""
        self._runtime.clock_offset = offset

    def rows(self, now: datetime) -> tuple[Row, ...]:
        """What the agent has on its disk, in the order of ids."""
        self.catch_up(now)
        return tuple(self._store.in_order())

    def remove_below(self, workload_id: WorkloadId, now: datetime) -> None:
        """Remove the runtime's object without a word to the agent (``docker rm``)."""
        self._runtime.remove(workload_id, self.catch_up(now))

    def stop_below(self, workload_id: WorkloadId, now: datetime) -> None:
        """Stop the runtime's object without a word to the agent (``docker stop``)."""
        self._runtime.stop(workload_id, self.catch_up(now))

    def remark_below(self, workload_id: WorkloadId, remark: str, now: datetime) -> None:
        """Have the runtime remark something of a container that runs (an unhealthy one)."""
        self.catch_up(now)
        self._runtime.objects[workload_id].remark = remark

    # --- the machine

    def power_on(self, now: datetime) -> None:
        """Start the agent's process, after ``halt`` or ``power_off``; else nothing happens."""
        now = self.catch_up(now)
        if self.state in (MachineState.UP, MachineState.PAUSED):
            return
        self.state = MachineState.UP
        self._boot_id = f"{self.settings.boot_salt}{self._rng.getrandbits(128):032x}"
        self._sequence = 0
        self._agenda = Agenda()
        self._queue = TaskQueue(self.settings, self._agenda, self._rng)
        self._executor = Executor(
            self.settings,
            self.plan,
            self._store,
            self._runtime,
            self._agenda,
            self.journal,
            self._rng,
        )
        self._loop = LocalLoop(self._executor, self._queue)
        self.journal.write(now, Happening.BOOTED)
        self._agenda.at(now, self._tick)

    def pause(self, now: datetime) -> None:
        """Stop the agent's process in its tracks; workloads run on."""
        self.catch_up(now)
        if self.state is MachineState.UP:
            self.state = MachineState.PAUSED

    def resume(self, now: datetime) -> None:
        """Let a paused process go on; what was due meanwhile happens now."""
        self.catch_up(now)
        if self.state is MachineState.PAUSED:
            self.state = MachineState.UP
            self.catch_up(now)

    def halt(self, now: datetime) -> None:
        """Kill the agent's process: tasks are lost, workloads run on."""
        now = self.catch_up(now)
        if self.state in (MachineState.UP, MachineState.PAUSED):
            self.state = MachineState.HALTED
            self._agenda.clear()
            self.journal.write(now, Happening.HALTED)

    def power_off(self, now: datetime, *, wipe: bool = False) -> None:
        """Switch the machine off: everything stops. ``wipe``: its disk is lost, too."""
        self.halt(now)
        self._runtime.stop_all(self._now)
        self.state = MachineState.OFF
        if wipe:
            self._store = AgentStore()
            offset, self._runtime = self.clock_offset, Runtime(self.journal)
            self._runtime.clock_offset = offset
            self.journal.write(self._now, Happening.WIPED)

    def running(self, now: datetime) -> dict[WorkloadId, RevisionId]:
        """What really runs on the machine at ``now``, whatever its agent says."""
        self.catch_up(now)
        return self._runtime.running()

    def spec_of(self, workload_id: WorkloadId) -> WorkloadSpec | None:
        """With which spec the runtime's object was made; ``None`` where there is none."""
        found = self._runtime.objects.get(workload_id)
        return found.spec if found else None

    def is_at_rest(self, workload_id: WorkloadId, now: datetime) -> bool:
        """Whether nothing of it runs at ``now``, nor is about to by the runtime's own doing."""
        self.catch_up(now)
        return self._runtime.is_at_rest(workload_id)

    def volumes(self, now: datetime) -> frozenset[str]:
        """The volumes that have data on the node at ``now``, as ``driver:name``."""
        self.catch_up(now)
        return frozenset(self._store.volumes)

    def catch_up(self, now: datetime) -> datetime:
        """Let happen what happens until ``now``, so that the journal is complete up to it.

        Returns the instant that counts: ``now``, or the latest one seen if that is later.
        """
        now = max(now, self._now)
        while (lane := self._due_lane(now)) is not None:
            self._now = lane.run_next(self._now)
        self._now = now
        return now

    def next_event_at(self) -> datetime | None:
        """When something happens by itself next; ``None`` while the machine is off."""
        return min((at for at in (lane.next_at() for lane in self._lanes()) if at), default=None)

    # --- inside

    def _lanes(self) -> tuple[Agenda, ...]:
        """Whose plans go on: the workloads' always, the agent's while its process runs."""
        up = self.state is MachineState.UP
        return (self._runtime.agenda, self._agenda) if up else (self._runtime.agenda,)

    def _due_lane(self, now: datetime) -> Agenda | None:
        due = [(at, lane) for lane in self._lanes() if (at := lane.next_at()) and at <= now]
        return min(due, key=lambda pair: pair[0])[1] if due else None

    def _tick(self, now: datetime) -> None:
        self._loop.run_once(now)
        self._agenda.at(now + self.settings.reconcile_interval, self._tick)

    def _refusal(self, request: ApplyRequest) -> str:
        if stale := self._stale(request.epoch):
            return stale
        behaviour = self.plan.behaviour(request.workload_id, request.spec, self._rng)
        if behaviour.refusal and request.desired_state is DesiredState.RUNNING:
            return (
                "failed to apply workload: [RESOURCE_QUOTA_EXCEEDED] Insufficient system resources"
                f" to admit workload (workload: {request.workload_id}): {behaviour.refusal}"
            )
        return ""

    def _stale(self, epoch: int) -> str:
        if not self.settings.fences or epoch == 0:
            return ""
        if epoch < self._store.newest_epoch:
            return (
                f"[STALE_EPOCH] the call carries epoch {epoch}, but this agent has obeyed"
                f" epoch {self._store.newest_epoch}: another scheduler leads now"
            )
        self._store.newest_epoch = epoch
        return ""

    def _refused(self, workload_id: str, epoch: int, message: str, now: datetime) -> Reply:
        self.journal.write(now, Happening.REFUSED, workload_id, detail=message, epoch=epoch)
        return Reply(False, message)

    def _submit_apply(self, request: ApplyRequest, now: datetime) -> Reply:
        def work(task: AgentTask, at: datetime, done: Done) -> None:
            def skip() -> None:
                task.skipped = True

            self._executor.apply(request, skip, at, _prefixing("apply", task, done))

        task = self._queue.submit(APPLY_TASK, request.workload_id, work, now)
        if task.inline:
            return Reply(True, "", task=task)
        report = AgentReport(
            workload_id=request.workload_id,
            state=AgentState.PENDING,
            message="task pending execution",
            task_status=TaskStatus.PENDING,
            reported_at=now,
            metadata={"task_id": task.id, "task_status": str(TaskStatus.PENDING)},
        )
        return Reply(True, "workload apply submitted for processing", report=report)

    def _submit_delete(self, request: DeleteRequest, now: datetime) -> Reply:
        def work(task: AgentTask, at: datetime, done: Done) -> None:
            self._executor.delete(
                request.workload_id, request.delete_volumes, at, _prefixing("delete", task, done)
            )

        task = self._queue.submit(DELETE_TASK, request.workload_id, work, now)
        if task.inline:
            return Reply(True, "", task=task)
        return Reply(True, "workload deletion submitted for processing")

    def _newest(self, workload_id: WorkloadId) -> NewestTask | None:
        task = self._queue.newest(workload_id)
        return NewestTask(task.id, workload_id, task.status, task.error) if task else None


def _prefixing(verb: str, task: AgentTask, done: Done) -> Done:
    def finish(error: str, now: datetime) -> None:
        text = f"failed to {verb} workload {task.workload_id}: {error}" if error else ""
        done(text, now)

    return finish
