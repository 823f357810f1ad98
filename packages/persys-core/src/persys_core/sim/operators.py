"""The people of a simulation: users who change their workloads, operators who change nodes.

Decided here: who does what, at which pace, and what an answer promises them (``wishes``). Every
workload and node has at most one open request, so that a promise is exact.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from attrs import define, field

from persys_core.control.answers import ApplyOutcomeKind
from persys_core.control.requests import (
    ApplyWorkload,
    DrainNode,
    NodeIntentChange,
    NodeTaintChange,
    RemoveNode,
)
from persys_core.model.errors import (
    FrozenError,
    InvalidInputError,
    NotFoundError,
    PersysError,
    RefusedError,
)
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.spec import WorkloadSpec, spec_revision
from persys_core.model.states import DesiredState, TaintEffect
from persys_core.model.volume import Volume
from persys_core.ports.cluster_store import Kind
from persys_core.sim import workloads
from persys_core.sim.front_door import FrontDoor
from persys_core.sim.history import History
from persys_core.sim.invariants import Finding, Rule
from persys_core.sim.watcher import Watcher
from persys_core.sim.wishes import ABSENT, Wish, Wishes

__all__ = ["People"]

_NO_EFFECT = (FrozenError, InvalidInputError, NotFoundError, RefusedError)
_Deed = Callable[[], Awaitable[object]]


@define(eq=False)
class _Owned:
    """A workload as its user remembers it."""

    spec: WorkloadSpec
    is_deleted: bool = False


@define(eq=False)
class People:
    """Users and operators of one run. ``target``: how many workloads there shall be."""

    door: FrontDoor
    wishes: Wishes
    watcher: Watcher
    history: History
    rng: random.Random
    target: int
    nodes: Callable[[], list[NodeId]]
    nodes_down: Callable[[], list[NodeId]]
    power: Callable[[NodeId, bool], None]
    """Switches a machine off or on, as its operator may."""
    accepted: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)
    unanswered: int = field(default=0, init=False)
    removals: int = field(default=0, init=False)
    _owned: dict[WorkloadId, _Owned] = field(factory=dict, init=False)
    _busy: set[str] = field(factory=set, init=False)
    _tasks: set[asyncio.Task[None]] = field(factory=set, init=False)
    _serial: int = field(default=0, init=False)

    def act(self) -> None:
        """Begin one deed, chosen by chance; it goes on by itself."""
        deed = self._choose()
        if deed is not None:
            task = asyncio.get_running_loop().create_task(deed)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until every open request is answered."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    def _choose(self) -> Coroutine[Any, Any, None] | None:
        alive = [w for w, owned in self._owned.items() if not owned.is_deleted]
        if len(alive) < self.target and (not alive or self.rng.random() < 0.8):
            return self._create()
        if self.rng.random() < 0.08:
            return self._operate()
        return self._on_workload(self.rng.choice(alive)) if alive else None

    # Users

    def _create(self) -> Coroutine[Any, Any, None]:
        gone = [w for w, owned in self._owned.items() if owned.is_deleted and w not in self._busy]
        if gone and self.rng.random() < 0.3:
            workload_id = self.rng.choice(gone)
        else:
            workload_id = f"w{self._serial}"
            self._serial += 1
        spec = workloads.new_spec(self.rng)
        self._owned[workload_id] = _Owned(spec)
        desired = DesiredState.STOPPED if self.rng.random() < 0.05 else None
        return self._apply(workload_id, spec, desired)

    def _on_workload(self, workload_id: WorkloadId) -> Coroutine[Any, Any, None] | None:
        if workload_id in self._busy:
            return None
        owned, dice = self._owned[workload_id], self.rng.random()
        if dice < 0.45:
            change = self.rng.choice((workloads.new_image, workloads.resized, workloads.relabelled))
            owned.spec = change(owned.spec, self.rng)
            return self._apply(workload_id, owned.spec, None)
        if dice < 0.50:
            return self._apply(workload_id, owned.spec, None)
        if dice < 0.62:
            return self._apply(workload_id, None, DesiredState.STOPPED)
        if dice < 0.78:
            return self._apply(workload_id, None, DesiredState.RUNNING)
        if dice < 0.94:
            owned.is_deleted = True
            return self._delete(workload_id, force=self.rng.random() < 0.1)
        return self._retry(workload_id)

    async def _apply(
        self, workload_id: WorkloadId, spec: WorkloadSpec | None, desired: DesiredState | None
    ) -> None:
        options = self._outcomes(workload_id, spec, desired)
        before = self.wishes.may_become(workload_id, *options)
        request = ApplyWorkload(workload_id, spec, desired)
        self._note(workload_id, f"applies {_told(spec, desired)}")

        async def send() -> None:
            answer = await self.door.call(lambda s: s.admission.apply_workload(request))
            self.wishes.became(
                workload_id, *(wish for wish in options if wish.revision_id == answer.revision_id)
            )
            self._note(workload_id, f"was answered {answer.outcome} on {answer.node_id or '-'}")
            if answer.outcome is not ApplyOutcomeKind.UNCHANGED:
                self._owned[workload_id].is_deleted = False

        await self._ask(workload_id, send, lambda: self.wishes.did_not(workload_id, before))

    def _outcomes(
        self, workload_id: WorkloadId, spec: WorkloadSpec | None, desired: DesiredState | None
    ) -> list[Wish]:
        """What the record may be after this apply, whichever of the possible ones it meets."""
        outcomes: list[Wish] = []
        for wish in sorted(self.wishes.possible(workload_id), key=repr):
            revision = spec_revision(spec) if spec else wish.revision_id if wish else ""
            state = desired or (wish.desired_state if wish else DesiredState.RUNNING)
            if revision and state is not DesiredState.DELETED:
                outcomes.append(Wish(revision, state))
        return outcomes

    async def _delete(self, workload_id: WorkloadId, *, force: bool) -> None:
        present = [wish for wish in self.wishes.possible(workload_id) if wish is not ABSENT]
        going = [Wish(wish.revision_id, DesiredState.DELETED) for wish in present]
        before = self.wishes.may_become(workload_id, ABSENT, *going)
        was_forced = self.wishes.was_forced(workload_id)
        if force:
            self.wishes.force(workload_id)
        self._note(workload_id, "forces its deletion" if force else "deletes it")

        async def send() -> None:
            answer = await self.door.call(
                lambda s: s.admission.delete_workload(workload_id, force=force)
            )
            rest = going if answer.outcome == "Deleting" else ()
            self.wishes.became(workload_id, ABSENT, *rest)
            if answer.outcome == "Tombstoned" and not was_forced:
                self.wishes.expect_no_rest(workload_id)
            self._note(workload_id, f"was answered {answer.outcome}")

        await self._ask(workload_id, send, lambda: self.wishes.did_not(workload_id, before))

    async def _retry(self, workload_id: WorkloadId) -> None:
        self._note(workload_id, "asks for a retry")

        async def send() -> None:
            await self.door.call(lambda s: s.admission.retry_workload(workload_id))

        await self._ask(workload_id, send, lambda: None)

    # Operators

    def _operate(self) -> Coroutine[Any, Any, None] | None:
        """What makes trouble is looked at first."""
        down = self.nodes_down() if self.rng.random() < 0.5 else []
        nodes = [node for node in down or self.nodes() if node not in self._busy]
        if not nodes:
            return None
        node_id, dice = self.rng.choice(nodes), self.rng.random()
        if dice < 0.3:
            return self._cordon(node_id, cordoned=self.rng.random() < 0.4)
        if dice < 0.45:
            return self._drain(node_id)
        if dice < 0.7:
            return self._undrain(node_id)
        if dice < 0.80:
            return self._taint(node_id, tainted=self.rng.random() < 0.4)
        if dice < 0.90:
            return self._fence(self._holder() or node_id)
        return self._remove(node_id, force=self.rng.random() < 0.4)

    async def _cordon(self, node_id: NodeId, *, cordoned: bool) -> None:
        before = self.wishes.may_cordon(node_id, cordoned)
        change = NodeIntentChange(node_id, "simulated")
        self._note(node_id, "is cordoned" if cordoned else "is uncordoned")

        async def send() -> None:
            await self.door.call(
                lambda s: s.nodes.cordon(change) if cordoned else s.nodes.uncordon(change)
            )
            self.wishes.set_cordon(node_id, cordoned)

        await self._ask(node_id, send, lambda: self.wishes.left_alone(node_id, before, cordoned))

    async def _drain(self, node_id: NodeId) -> None:
        deadline = timedelta(seconds=60) if self.rng.random() < 0.5 else None
        force = deadline is not None and self.rng.random() < 0.5
        order = DrainNode(NodeIntentChange(node_id, "simulated"), deadline, force)
        self._note(node_id, f"is drained, {'by force' if force else 'gently'}")
        await self._ask(
            node_id, lambda: self.door.call(lambda s: s.nodes.drain(order)), lambda: None
        )

    async def _undrain(self, node_id: NodeId) -> None:
        """Ends a cordon too."""
        before = self.wishes.may_cordon(node_id, False)
        change = NodeIntentChange(node_id, "simulated")
        self._note(node_id, "is returned to service")

        async def send() -> None:
            await self.door.call(lambda s: s.nodes.undrain(change))
            self.wishes.set_cordon(node_id, False)

        await self._ask(node_id, send, lambda: self.wishes.left_alone(node_id, before, False))

    async def _taint(self, node_id: NodeId, *, tainted: bool) -> None:
        mark = NodeTaintChange(
            NodeIntentChange(node_id, "simulated"), "broken", effect=TaintEffect.NO_EXECUTE
        )
        self._note(node_id, "is tainted NoExecute" if tainted else "is not tainted any more")
        await self._ask(
            node_id,
            lambda: self.door.call(
                lambda s: s.nodes.taint(mark) if tainted else s.nodes.untaint(mark)
            ),
            lambda: None,
        )

    def _holder(self) -> NodeId:
        """A node that alone writes to a volume, if there is one: there a fence matters."""
        volumes = self.watcher.mirror.values(Kind.VOLUME, Volume)
        nodes = sorted({each.claim.node_id for each in volumes if each.claim is not None})
        free = [node for node in nodes if node not in self._busy]
        return self.rng.choice(free) if free else ""

    async def _fence(self, node_id: NodeId) -> None:
        """A careful operator: the machine is off before this is said, and on again only after."""
        change = NodeIntentChange(node_id, "simulated")
        pause = self.rng.uniform(30, 480)
        self._note(node_id, "is switched off and fenced")
        self._busy.add(node_id)
        self.power(node_id, False)
        await asyncio.sleep(_UNTIL_NOT_READY.total_seconds())
        await self._ask(
            node_id, lambda: self.door.call(lambda s: s.volumes.fence(change)), lambda: None
        )
        self._busy.add(node_id)
        await asyncio.sleep(pause)
        self._busy.discard(node_id)
        self._note(node_id, "is switched on")
        self.power(node_id, True)

    async def _remove(self, node_id: NodeId, *, force: bool) -> None:
        before = self.wishes.may_remove(node_id)
        order = RemoveNode(NodeIntentChange(node_id, "simulated"), force)
        self._note(node_id, "is removed by force" if force else "is removed")

        def refused() -> None:
            self.wishes.left_alone(node_id, before, ABSENT, False)

        async def send() -> None:
            answer = await self.door.call(lambda s: s.nodes.remove(order))
            if answer.accepted:
                self.wishes.removed(node_id)
                self.removals += 1
            else:
                refused()

        await self._ask(node_id, send, refused)

    async def uncordon_all(self) -> None:
        """Return every node to service; repeated until it is answered."""
        for node_id in self.nodes():
            await self._undrain(node_id)
            await self._taint(node_id, tainted=False)

    async def give_up(self, workload_ids: list[WorkloadId]) -> None:
        """Delete these, one after the other."""
        for workload_id in workload_ids:
            self._owned[workload_id].is_deleted = True
            await self._delete(workload_id, force=False)

    # Both

    async def _ask(self, subject: str, send: _Deed, had_no_effect: Callable[[], None]) -> None:
        self._busy.add(subject)
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                await send()
            self.accepted += 1
        except _NO_EFFECT as error:
            had_no_effect()
            self.refused += 1
            self._doubt(subject, error)
            self._note(subject, f"was refused: {error}"[:120])
        except (PersysError, TimeoutError) as error:
            self.unanswered += 1
            self._note(subject, f"got no answer: {error}"[:120])
        finally:
            self._busy.discard(subject)
        self.watcher.check_promise(subject)

    def _doubt(self, subject: str, error: PersysError) -> None:
        """*Not found* is a lie where the user was promised that it exists."""
        if not self.watcher.data_is_whole or not isinstance(error, NotFoundError):
            return
        if ABSENT not in self.wishes.possible(subject):
            self.watcher.report(
                [Finding(Rule.NOTHING_LOST, f"its user was told: {error}", (subject,))]
            )

    def _note(self, subject: str, text: str) -> None:
        self.history.add("people", (subject,), text)


_PATIENCE = timedelta(seconds=60)
_UNTIL_NOT_READY = timedelta(seconds=35)


def _told(spec: WorkloadSpec | None, desired: DesiredState | None) -> str:
    what = spec_revision(spec)[:8] if spec else "-"
    return f"{what} {desired or ''}".rstrip()
