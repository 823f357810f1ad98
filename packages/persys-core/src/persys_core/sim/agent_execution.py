"""How a simulated agent carries out an apply or a delete, step by step in time.

Decided here: the order of the steps and the texts of their failures, which are those of the
agents in the field. The caller holds the workload's lock until ``done`` is called.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime

from attrs import define

from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState
from persys_core.ports.agents import ApplyRequest
from persys_core.sim.agent_agenda import Agenda
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_journal import Happening, Journal
from persys_core.sim.agent_runtime import Look, Runtime, RuntimeObject
from persys_core.sim.agent_settings import Admission, AgentSettings
from persys_core.sim.agent_store import AgentStore, Row
from persys_core.sim.agent_tasks import Done

__all__ = ["Executor"]

Skip = Callable[[], None]


@define(eq=False)
class Executor:
    """The agent's workload manager: everything that touches the runtime."""

    settings: AgentSettings
    plan: FaultPlan
    store: AgentStore
    runtime: Runtime
    agenda: Agenda
    journal: Journal
    rng: random.Random

    def look(self, row: Row) -> Look:
        """Ask the runtime about a stored workload."""
        return self.runtime.look(row.workload_id, row.spec.type)

    def refresh(self, row: Row, now: datetime) -> None:
        """Ask the runtime and take its answer over into the row."""
        row.refresh(self.look(row), now, masks_failures=self.settings.masks_failures)

    def apply(self, request: ApplyRequest, skip: Skip, now: datetime, done: Done) -> None:
        """Carry out an apply; ``skip`` is called first where there is nothing to do."""
        row = self.store.rows.get(request.workload_id)
        if row and row.revision_id == request.revision_id:
            self.refresh(row, now)
            if row.state is not AgentState.FAILED and not self.look(row).is_missing:
                self._change_desired(row, request.desired_state, skip, now, done)
                return
        self._apply_in_full(request, row, now, done)

    def delete(
        self, workload_id: WorkloadId, delete_volumes: bool, now: datetime, done: Done
    ) -> None:
        """Carry out a delete."""
        if workload_id not in self.store.rows:
            done("workload not found: workload not found", now)
            return
        self.agenda.at(
            now + self.settings.delete.at(self.rng.random()),
            lambda at: self._delete_now(workload_id, delete_volumes, at, done),
        )

    def create(self, row: Row, behaviour: Behaviour, now: datetime, done: Done) -> None:
        """Create the runtime object of ``row`` and start it if that is wanted."""
        latency = self.settings.slow_create if behaviour.slow else self.settings.create
        self.agenda.at(
            now + latency.at(self.rng.random()),
            lambda at: self._created(row, behaviour, at, done),
        )

    def start(self, row: Row, behaviour: Behaviour, now: datetime, done: Done) -> None:
        """Start the runtime object of ``row``."""
        self.agenda.at(
            now + self.settings.start.at(self.rng.random()),
            lambda at: self._started(row, behaviour, at, done),
        )

    def stop(self, row: Row, now: datetime, done: Done) -> None:
        """Stop the runtime object of ``row``."""

        def stopped(at: datetime) -> None:
            self.runtime.stop(row.workload_id, at)
            self.refresh(row, at)
            done("", at)

        self.agenda.at(now + self.settings.stop.at(self.rng.random()), stopped)

    def behaviour(self, row: Row) -> Behaviour:
        """What the plan has for this workload, drawn anew."""
        return self.plan.behaviour(row.workload_id, row.spec, self.rng)

    def _change_desired(
        self, row: Row, desired: DesiredState, skip: Skip, now: datetime, done: Done
    ) -> None:
        """The same revision again: start or stop what is there, or do nothing."""
        wants_running = desired is DesiredState.RUNNING
        is_running = row.state in (AgentState.RUNNING, AgentState.PENDING)
        changed, row.desired = row.desired is not desired, desired
        if wants_running and row.state is not AgentState.RUNNING:
            self.start(row, self.behaviour(row), now, done)
        elif not wants_running and is_running:
            self.stop(row, now, done)
        else:
            if not changed:
                skip()
            done("", now)

    def _apply_in_full(
        self, request: ApplyRequest, old: Row | None, now: datetime, done: Done
    ) -> None:
        kind = request.spec.type
        if kind not in self.settings.workload_types:
            done(f"runtime not available: runtime not available for type: {kind}", now)
            return
        if old and old.revision_id != request.revision_id:
            self.runtime.remove(request.workload_id, now)
        row = _new_row(request, now)
        behaviour = self.behaviour(row)
        reasons = behaviour.admission_error or self._over_capacity(request)
        self.store.rows[request.workload_id] = row
        if reasons:
            self._not_admitted(row, reasons, now, done)
        elif missing := self._missing_driver(request.spec.managed_volumes):
            self._no_volume(row, missing, now, done)
        else:
            self._claim_volumes(row)
            self.create(row, behaviour, now, done)

    def _not_admitted(self, row: Row, reasons: str, now: datetime, done: Done) -> None:
        row.fail(f"admission rejected due to resource constraints: [{reasons}]", now)
        done(
            "[RESOURCE_QUOTA_EXCEEDED] Insufficient system resources to admit workload"
            f" (workload: {row.workload_id})",
            now,
        )

    def _no_volume(self, row: Row, driver: str, now: datetime, done: Done) -> None:
        cause = f'storage driver "{driver}" is not registered'
        row.fail(
            f"managed storage setup failed: {cause}",
            now,
            failure_reason="STORAGE_PROVISION_FAILED",
            failure_message=cause,
            last_error=cause,
        )
        done(
            f"[VOLUME_MOUNT_FAILED] Failed to set up managed storage"
            f" (workload: {row.workload_id}): {cause}",
            now,
        )

    def _over_capacity(self, request: ApplyRequest) -> str:
        if self.settings.admission is Admission.NONE:
            return ""
        others = (
            row.spec.resources
            for row in self.store.rows.values()
            if row.workload_id != request.workload_id
        )
        free = self.settings.capacity - Resources.total(others)
        short = request.spec.resources.shortfalls(free)
        return ", ".join(f"not enough {dimension}" for dimension in short)

    def _missing_driver(self, volumes: tuple[ManagedVolume, ...]) -> str:
        known = self.settings.storage_drivers
        return next((each.driver for each in volumes if each.driver not in known), "")

    def _claim_volumes(self, row: Row) -> None:
        for volume in row.spec.managed_volumes:
            users = self.store.volumes.setdefault(f"{volume.driver}:{volume.name}", set())
            users.add(row.workload_id)

    def _created(self, row: Row, behaviour: Behaviour, now: datetime, done: Done) -> None:
        made = RuntimeObject(row.workload_id, row.revision_id, row.spec, behaviour)
        if cause := behaviour.create_error:
            self.runtime.fail_to_create(made)
            self._failed(row, "create", cause, now)
            done(
                "[CREATE_FAILED] Failed to create workload in runtime"
                f" (workload: {row.workload_id}): {cause}",
                now,
            )
            return
        self.runtime.create(made, now)
        if row.desired is DesiredState.RUNNING:
            self.start(row, behaviour, now, done)
        else:
            self.refresh(row, now)
            done("", now)

    def _started(self, row: Row, behaviour: Behaviour, now: datetime, done: Done) -> None:
        look = self.look(row)
        # Somebody may have removed it below the agent since it was made.
        cause = behaviour.start_error or (look.message if look.is_missing else "")
        if cause:
            self._failed(row, "start", cause, now)
            done(
                "[START_FAILED] Failed to start workload in runtime"
                f" (workload: {row.workload_id}): {cause}",
                now,
            )
            return
        self.runtime.start(row.workload_id, now)
        row.forget_retries()
        row.metadata.pop("last_error", None)
        self.refresh(row, now)
        done("", now)

    def _failed(self, row: Row, step: str, cause: str, now: datetime) -> None:
        row.fail(f"{step} failed: {cause}", now, last_failure_at=now.isoformat(), last_error=cause)

    def _delete_now(
        self, workload_id: WorkloadId, delete_volumes: bool, now: datetime, done: Done
    ) -> None:
        row = self.store.rows.pop(workload_id)
        self.runtime.remove(workload_id, now)
        for volume in row.spec.managed_volumes:
            self._release_volume(row, volume, delete_volumes, now)
        done("", now)

    def _release_volume(self, row: Row, volume: ManagedVolume, asked: bool, now: datetime) -> None:
        name = f"{volume.driver}:{volume.name}"
        users = self.store.volumes.get(name, set())
        users.discard(row.workload_id)
        keeps = volume.retain_policy.lower() == "retain"
        if keeps or users or (self.settings.volume_data_on_request and not asked):
            return
        self.store.volumes.pop(name, None)
        self.journal.write(
            now, Happening.VOLUME_DELETED, row.workload_id, row.revision_id, detail=name
        )


def _new_row(request: ApplyRequest, now: datetime) -> Row:
    return Row(
        request.workload_id,
        request.revision_id,
        request.desired_state,
        request.spec,
        created_at=now,
        updated_at=now,
        message="creating workload",
    )
