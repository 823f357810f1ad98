"""Somebody at the machines, who changes what runs there past the scheduler.

Decided here: what such a person does, from chance alone, and what the judges must know about it: a
copy that was started by hand is no fault of the scheduler, and a stop below the agent looks to
everybody like an end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from attrs import define, field

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState
from persys_core.model.workload import Workload
from persys_core.ports.agents import ApplyRequest, DeleteRequest
from persys_core.ports.cluster_store import Kind
from persys_core.sim import workloads
from persys_core.sim.agent import AgentModel, MachineState
from persys_core.sim.agent_behaviour import image_names
from persys_core.sim.agent_store import Row
from persys_core.sim.history import History
from persys_core.sim.invariants import Scene
from persys_core.sim.scenario import FaultKind

__all__ = ["Tamperer"]

_UNKNOWN = "x"
"""What the ids of workloads begin with that no user ever named."""
_SOUND = ("web", "db")


@define(eq=False)
class Tamperer:
    """A person with a shell on every machine."""

    scene: Scene
    history: History
    rng: random.Random
    _serial: int = field(default=0, init=False)

    def tamper(self, kind: FaultKind, model: AgentModel) -> None:
        """Do what ``kind`` says on one machine; nothing where its agent does not run."""
        if model.state is not MachineState.UP:
            return
        if kind is FaultKind.DRIFT_APPEARED:
            self._start_something(model)
            return
        rows = model.rows(self.scene.now())
        if rows:
            self._deeds[kind](model, self.rng.choice(rows))

    def clear_restless(self, model: AgentModel) -> None:
        """Remove by hand what is nobody's and never comes to rest."""
        node_id = model.settings.node_id
        for row in model.rows(self.scene.now()):
            orphan = not self.scene.mirror.is_assigned(row.workload_id, node_id)
            if orphan and not _is_sound(row.spec):
                self._remove(model, row, below=False)

    @property
    def _deeds(self) -> Mapping[FaultKind, Callable[[AgentModel, Row], None]]:
        return {
            FaultKind.DRIFT_VANISHED: lambda model, row: self._remove(
                model, row, below=self.rng.random() < 0.4
            ),
            FaultKind.DRIFT_REVISION: self._give_another_revision,
            FaultKind.DRIFT_STATE: self._turn,
        }

    # Deeds

    def _remove(self, model: AgentModel, row: Row, *, below: bool) -> None:
        self._note(model, row.workload_id, "removes it" + (" below the agent" if below else ""))
        if below:
            model.remove_below(row.workload_id, self.scene.now())
        else:
            model.delete(DeleteRequest(row.workload_id, 0), self.scene.now())

    def _turn(self, model: AgentModel, row: Row) -> None:
        runs = row.workload_id in model.running(self.scene.now())
        if runs and self.rng.random() < 0.5:
            self._note(model, row.workload_id, "stops it below the agent")
            # Agents tell such a stop as they tell an end, so the scheduler may take it for one.
            self.scene.exits.add((model.settings.node_id, row.workload_id, row.revision_id))
            model.stop_below(row.workload_id, self.scene.now())
        else:
            state = DesiredState.STOPPED if runs else DesiredState.RUNNING
            self._apply(model, row.workload_id, row.revision_id, row.spec, state)

    def _give_another_revision(self, model: AgentModel, row: Row) -> None:
        spec = workloads.new_image(row.spec, self.rng)
        self._apply(model, row.workload_id, self._revision(), spec, row.desired)

    def _start_something(self, model: AgentModel) -> None:
        known = self._known_elsewhere(model.settings.node_id)
        if known and self.rng.random() < 0.6:
            workload = self.rng.choice(known)
            same = self.rng.random() < 0.7
            revision = workload.revision_id if same else self._revision()
            self._apply(model, workload.id, revision, workload.spec, DesiredState.RUNNING)
            return
        workload_id = f"{_UNKNOWN}{self._serial}"
        spec = workloads.new_spec(self.rng)
        self._apply(model, workload_id, self._revision(), spec, DesiredState.RUNNING)

    def _known_elsewhere(self, node_id: NodeId) -> list[Workload]:
        mirror = self.scene.mirror
        return [
            workload
            for workload in mirror.values(Kind.WORKLOAD, Workload)
            if not mirror.is_assigned(workload.id, node_id)
        ]

    # Parts

    def _apply(
        self,
        model: AgentModel,
        workload_id: WorkloadId,
        revision_id: RevisionId,
        spec: WorkloadSpec,
        desired: DesiredState,
    ) -> None:
        self._note(model, workload_id, f"applies {desired} {revision_id[:8]} by hand")
        request = ApplyRequest(workload_id, revision_id, desired, spec, 0)
        model.apply(request, self.scene.now())

    def _revision(self) -> RevisionId:
        self._serial += 1
        return f"byhand{self._serial}"

    def _note(self, model: AgentModel, workload_id: WorkloadId, text: str) -> None:
        subjects = (workload_id, model.settings.node_id)
        self.history.add("shell", subjects, f"somebody {text}")


def _is_sound(spec: WorkloadSpec) -> bool:
    return all(name.startswith(_SOUND) for name in image_names(spec))
