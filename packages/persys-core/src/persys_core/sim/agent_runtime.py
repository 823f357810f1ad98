"""The runtimes of a simulated node: containers, Compose projects and virtual machines.

Decided here: how a runtime object lives (created, running, exited, restarting) and how the agent
words what it sees of it. The object is what really runs: it survives the agent's process.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum, auto

from attrs import define, field, frozen

from persys_core.model.ids import RevisionId, WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import RestartPolicy, WorkloadType
from persys_core.sim.agent_agenda import Agenda
from persys_core.sim.agent_behaviour import Behaviour, image_names
from persys_core.sim.agent_journal import Happening, Journal

__all__ = ["Look", "Phase", "Runtime", "RuntimeObject"]

_LOST_WITH_THE_MACHINE = 255
_FIRST_RESTART = timedelta(seconds=1)
_LONGEST_RESTART = timedelta(minutes=1)
_STABLE_RUN = timedelta(seconds=10)
_RESTARTS_ALWAYS = (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED)
_NOT_FOUND = {
    WorkloadType.CONTAINER: "container not found",
    WorkloadType.COMPOSE: "project not found",
    WorkloadType.VM: "domain not found",
    WorkloadType.MICROVM: "domain not found",
}


class Phase(StrEnum):
    """Where a runtime object stands."""

    EMPTY = auto()
    """A Compose project whose containers were never made."""
    CREATED = auto()
    RUNNING = auto()
    RESTARTING = auto()
    EXITED = auto()


@define(eq=False)
class RuntimeObject:
    """One container, project or machine."""

    workload_id: WorkloadId
    revision_id: RevisionId
    spec: WorkloadSpec
    behaviour: Behaviour
    phase: Phase = Phase.CREATED
    exit_code: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restart_delay: timedelta = _FIRST_RESTART
    remark: str = ""
    """What is said of a container that is up or started again, beside its state."""
    life: int = field(default=0)
    """Grows with every start and stop; what was planned for an earlier life is void."""


@frozen
class Look:
    """What a runtime says of an object, in the agent's words."""

    state: AgentState
    message: str
    metadata: dict[str, str] = field(factory=dict)

    @property
    def is_missing(self) -> bool:
        """Whether the runtime does not know the object."""
        return self.state is AgentState.UNKNOWN and self.message.endswith("not found")


class Runtime:
    """All runtimes of one node. Instants are passed in; exits and restarts go on the agenda."""

    def __init__(self, journal: Journal) -> None:
        self.agenda = Agenda()
        self.objects: dict[WorkloadId, RuntimeObject] = {}
        self.clock_offset = timedelta(0)
        """How far the machine's wall clock is ahead; ends are noted in its time."""
        self._journal = journal

    def create(self, made: RuntimeObject, now: datetime) -> None:
        """Make an object; one that exists with the same revision is left as it is."""
        old = self.objects.get(made.workload_id)
        if old and old.revision_id == made.revision_id and old.phase is not Phase.EMPTY:
            old.behaviour = made.behaviour
            return
        self.remove(made.workload_id, now)
        self.objects[made.workload_id] = made
        self._journal.write(now, Happening.CREATED, made.workload_id, made.revision_id)

    def fail_to_create(self, wanted: RuntimeObject) -> None:
        """A creation failed: only a Compose project leaves something behind."""
        if wanted.spec.type is WorkloadType.COMPOSE and wanted.workload_id not in self.objects:
            wanted.phase = Phase.EMPTY
            self.objects[wanted.workload_id] = wanted

    def start(self, workload_id: WorkloadId, now: datetime) -> None:
        """Start an object; nothing happens to one that runs."""
        found = self.objects[workload_id]
        if found.phase is Phase.RUNNING:
            return
        found.phase, found.started_at, found.life = Phase.RUNNING, now, found.life + 1
        self._journal.write(now, Happening.STARTED, workload_id, found.revision_id)
        if found.behaviour.exit_after is not None:
            life = found.life
            self.agenda.at(now + found.behaviour.exit_after, lambda at: self._exit(found, life, at))

    def stop(self, workload_id: WorkloadId, now: datetime) -> None:
        """Stop an object; nothing happens to one that does not run."""
        found = self.objects.get(workload_id)
        if found is None or found.phase not in (Phase.RUNNING, Phase.RESTARTING):
            return
        found.phase, found.exit_code = Phase.EXITED, 0
        found.finished_at = now + self.clock_offset
        found.life += 1
        self._journal.write(now, Happening.STOPPED, workload_id, found.revision_id)

    def remove(self, workload_id: WorkloadId, now: datetime) -> None:
        """Stop and remove an object; nothing happens where there is none."""
        self.stop(workload_id, now)
        if found := self.objects.pop(workload_id, None):
            self._journal.write(now, Happening.REMOVED, workload_id, found.revision_id)

    def stop_all(self, now: datetime) -> None:
        """The machine loses power: containers are later found to have exited with code 255."""
        for workload_id, found in self.objects.items():
            was_up = found.phase in (Phase.RUNNING, Phase.RESTARTING)
            self.stop(workload_id, now)
            if was_up and found.spec.type is WorkloadType.CONTAINER:
                found.exit_code = _LOST_WITH_THE_MACHINE

    def look(self, workload_id: WorkloadId, kind: WorkloadType) -> Look:
        """What the runtime of ``kind`` answers when it is asked for this object."""
        found = self.objects.get(workload_id)
        if found is None:
            return Look(AgentState.UNKNOWN, _NOT_FOUND[kind])
        match kind:
            case WorkloadType.CONTAINER:
                return _look_at_container(found)
            case WorkloadType.COMPOSE:
                return _look_at_project(found)
            case WorkloadType.VM | WorkloadType.MICROVM:
                return _look_at_machine(found)

    def running(self) -> dict[WorkloadId, RevisionId]:
        """What really runs at this moment."""
        return {
            found.workload_id: found.revision_id
            for found in self.objects.values()
            if found.phase is Phase.RUNNING
        }

    def is_at_rest(self, workload_id: WorkloadId) -> bool:
        """Whether it neither runs nor is about to be started again by its restart policy."""
        found = self.objects.get(workload_id)
        return found is None or found.phase not in (Phase.RUNNING, Phase.RESTARTING)

    def _exit(self, found: RuntimeObject, life: int, now: datetime) -> None:
        if found.life != life or found.phase is not Phase.RUNNING:
            return
        found.exit_code = found.behaviour.exit_code
        found.finished_at = now + self.clock_offset
        self._journal.write(
            now,
            Happening.EXITED,
            found.workload_id,
            found.revision_id,
            detail=str(found.exit_code),
        )
        if not _restarts(found):
            found.phase = Phase.EXITED
            return
        found.phase = Phase.RESTARTING
        self.agenda.at(now + _next_delay(found), lambda at: self._restart(found, life, at))

    def _restart(self, found: RuntimeObject, life: int, now: datetime) -> None:
        if found.life == life and found.phase is Phase.RESTARTING:
            self.start(found.workload_id, now)


def _restarts(found: RuntimeObject) -> bool:
    policy = found.spec.restart_policy
    return policy in _RESTARTS_ALWAYS or (
        policy is RestartPolicy.ON_FAILURE and found.exit_code != 0
    )


def _next_delay(found: RuntimeObject) -> timedelta:
    ran = (found.behaviour.exit_after or timedelta(0)) >= _STABLE_RUN
    delay = _FIRST_RESTART if ran else found.restart_delay
    found.restart_delay = min(delay * 2, _LONGEST_RESTART)
    return delay


def _look_at_container(found: RuntimeObject) -> Look:
    metadata = _container_metadata(found)
    match found.phase:
        case Phase.RUNNING:
            return Look(AgentState.RUNNING, found.remark or "running", metadata)
        case Phase.RESTARTING:
            return Look(AgentState.PENDING, found.remark or "restarting", metadata)
        case Phase.EXITED if found.exit_code != 0:
            return Look(AgentState.FAILED, f"exited with code {found.exit_code}: ", metadata)
        case _:
            return Look(AgentState.STOPPED, str(found.phase), metadata)


def _container_metadata(found: RuntimeObject) -> dict[str, str]:
    name = f"{found.workload_id} {found.revision_id}".encode()
    metadata = {
        "container.id": hashlib.sha256(name).hexdigest()[:12],
        "container.state": str(found.phase),
        "container.image": image_names(found.spec)[0],
        "container.exit_code": str(found.exit_code),
    }
    if found.started_at:
        metadata["container.started_at"] = found.started_at.isoformat()
    if found.phase is Phase.EXITED and found.finished_at:
        metadata["container.finished_at"] = found.finished_at.isoformat()
    if found.phase is Phase.EXITED and found.exit_code:
        metadata["container.stderr"] = "simulated crash\n"
    return metadata


def _look_at_project(found: RuntimeObject) -> Look:
    count = max(1, len(image_names(found.spec)))
    match found.phase:
        case Phase.EMPTY:
            return Look(AgentState.STOPPED, "no containers")
        case Phase.RUNNING:
            return Look(AgentState.RUNNING, f"{count}/{count} containers running")
        case _:
            return Look(AgentState.STOPPED, f"0/{count} containers running")


def _look_at_machine(found: RuntimeObject) -> Look:
    match found.phase:
        case Phase.RUNNING:
            return Look(
                AgentState.RUNNING, "running (reason=booted)", {"vm.domain_state": "running"}
            )
        case Phase.EXITED if found.exit_code != 0:
            return Look(
                AgentState.FAILED, "crashed (reason=panicked)", {"vm.domain_state": "crashed"}
            )
        case _:
            return Look(
                AgentState.STOPPED, "shutdown (reason=shutdown)", {"vm.domain_state": "shutoff"}
            )
