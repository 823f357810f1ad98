"""What an apply does to the records, decided on the present view and written by nobody here.

One code for two users: admission commits what it decides, planning shows it and throws it away.
Hence nothing is remembered here; whether a placement is held until it shows in the ledger is up to
the ``Placing`` that these rules are given.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import evolve, frozen

from persys_core.control.answers import ApplyAnswer, ApplyOutcomeKind
from persys_core.control.placing import Placing
from persys_core.control.requests import ApplyWorkload
from persys_core.control.view import ClusterView
from persys_core.model.constraints import constraint_errors
from persys_core.model.errors import (
    FieldError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    StalePlanError,
)
from persys_core.model.ids import RevisionId, StoreRevision, WorkloadId, is_valid_id
from persys_core.model.spec import WorkloadSpec, spec_revision
from persys_core.model.states import DesiredState
from persys_core.model.workload import StatusRecord, Workload
from persys_core.placement.ledger import Transaction
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import Key, Versioned
from persys_core.reconcile import transitions
from persys_core.reconcile.situation import Outlook, outlook_of
from persys_core.volumes.wishes import is_exclusive_volume, wanted_volumes

__all__ = ["ApplyDecision", "ApplyRules", "check_apply"]


@frozen
class ApplyDecision:
    """What an apply comes to: the commit, its answer, and the workload on both sides of it.

    ``unplaced`` is the new status before a node was looked for; what a placement was asked with.
    """

    tx: Transaction
    answer: ApplyAnswer
    stored: Versioned[Workload] | None
    workload: Workload
    unplaced: StatusRecord


@frozen
class ApplyRules:
    """Decides applies on one view. Equal views and requests give equal decisions, but for the
    ``uid`` that ``new_uid`` gives to a new workload.
    """

    _view: ClusterView
    _placing: Placing
    _clock: Clock
    _new_uid: Callable[[], str]

    def decide(self, request: ApplyWorkload) -> ApplyDecision:
        """What ``request`` comes to. NotFoundError, RefusedError (being deleted),
        StalePlanError (another revision is stored than the request expects)."""
        stored = self._view.workload(request.workload_id)
        _compare(request, stored.revision if stored else 0)
        if stored is None:
            return self._create(request)
        workload = stored.value
        if workload.desired_state is DesiredState.DELETED:
            raise RefusedError(
                f'workload "{workload.id}" is being deleted; apply it again once it is gone'
            )
        if workload.imported is not None and request.spec is None:
            raise RefusedError(
                f'workload "{workload.id}" was imported from {workload.imported.node_id} and'
                f" {transitions.IMPORT_ADVICE}; desired_state may be changed together with it"
            )
        return self._change(stored, self._changed(workload, request))

    def _create(self, request: ApplyWorkload) -> ApplyDecision:
        if request.spec is None:
            raise NotFoundError("workload", request.workload_id)
        now = self._clock.now()
        workload = Workload(
            id=request.workload_id,
            uid=self._new_uid(),
            spec=request.spec,
            revision_id=spec_revision(request.spec),
            desired_state=request.desired_state or DesiredState.RUNNING,
            created_at=now,
            updated_at=now,
            client_revision_id=request.client_revision_id,
        )
        status = transitions.created(workload, now)
        return self._placed(None, workload, status, ApplyOutcomeKind.CREATED)

    def _changed(self, workload: Workload, request: ApplyWorkload) -> Workload:
        spec = request.spec if request.spec is not None else workload.spec
        changed = evolve(
            workload,
            spec=spec,
            revision_id=_revision(workload, spec),
            desired_state=request.desired_state or workload.desired_state,
            client_revision_id=request.client_revision_id or workload.client_revision_id,
            imported=None,
        )
        if changed == workload:
            return workload
        return evolve(changed, updated_at=self._clock.now())

    def _change(self, stored: Versioned[Workload], changed: Workload) -> ApplyDecision:
        workload, now = stored.value, self._clock.now()
        status = self._status_of(workload, now)
        if workload.imported is not None:
            completed = self._completed(stored, changed, status)
            if completed is not None:
                return completed
        if changed.revision_id != workload.revision_id or workload.imported is not None:
            self._refuse_taking_from_others(workload, changed)
            status = transitions.spec_changed(status, changed, now)
            return self._placed(stored, changed, status, ApplyOutcomeKind.UPDATED)
        if changed.desired_state is not workload.desired_state:
            status = transitions.desired_state_changed(status, changed, now)
            return self._placed(stored, changed, status, ApplyOutcomeKind.DESIRED_STATE_CHANGED)
        # The client's own revision may differ all the same: it is kept, and changes nothing else.
        tx = Transaction().put(Key.workload(workload.id), changed, stored)
        answer = ApplyAnswer(
            ApplyOutcomeKind.UNCHANGED, changed.revision_id, self._node_of(workload.id)
        )
        return ApplyDecision(tx, answer, stored, changed, status)

    def _refuse_taking_from_others(self, workload: Workload, changed: Workload) -> None:
        """A volume that others share cannot become exclusive by one user's word: those who share it
        run on, and each who would need it alone waits for the others for ever."""
        shared = wanted_volumes(workload.spec)
        for id_, wanted in wanted_volumes(changed.spec).items():
            was = shared.get(id_)
            if was is None or is_exclusive_volume(was) or not is_exclusive_volume(wanted):
                continue
            users = {
                f"{found.value.workload_id} on {found.value.node_id}"
                for key in self._view.attachments_to(id_)
                if (found := self._view.attachment(key)) is not None
                and (found.value.workload_id, found.value.node_id)
                != (changed.id, self._node_of(changed.id))
            }
            if users:
                raise RefusedError(
                    f'volume "{id_}" is shared by {", ".join(sorted(users))}: it can become'
                    f' exclusive for workload "{changed.id}" once they are gone'
                )

    def _completed(
        self, stored: Versioned[Workload], changed: Workload, status: StatusRecord
    ) -> ApplyDecision | None:
        """Its user gives the spec of what was imported, and it is the one that runs: it is charged
        where it is and goes on. ``None`` where it is another spec, or the node is gone."""
        workload, node_id = stored.value, self._node_of(changed.id)
        if changed.revision_id != workload.revision_id:
            return None
        now = self._clock.now()
        tx = Transaction().put(Key.workload(changed.id), changed, stored)
        charged = self._placing.found(tx, changed, status, node_id, now)
        if charged is None:
            return None
        known = transitions.import_completed(status, workload, changed, now)
        tx = charged.put(Key.status(changed.id), known, self._view.status(changed.id))
        answer = ApplyAnswer(ApplyOutcomeKind.UPDATED, changed.revision_id, node_id)
        return ApplyDecision(tx, answer, stored, changed, known)

    def _placed(
        self,
        stored: Versioned[Workload] | None,
        workload: Workload,
        unplaced: StatusRecord,
        outcome: ApplyOutcomeKind,
    ) -> ApplyDecision:
        """Place the workload if it is to run and has no share yet, all in the same commit."""
        tx = Transaction().put(Key.workload(workload.id), workload, stored)
        status, explanation = unplaced, None
        if outlook_of(workload, status) is Outlook.RUN:
            tx, status, explanation = self._placing.into(tx, workload, status)
        tx = tx.put(Key.status(workload.id), status, self._view.status(workload.id))
        tx = tx.expecting(Key.assignment(workload.id), self._view.assignment(workload.id))
        assigned = tx.pending(Key.assignment(workload.id))
        node_id = getattr(assigned, "node_id", "") or self._node_of(workload.id)
        answer = ApplyAnswer(outcome, workload.revision_id, node_id, explanation)
        return ApplyDecision(tx, answer, stored, workload, unplaced)

    def _status_of(self, workload: Workload, now: datetime) -> StatusRecord:
        stored = self._view.status(workload.id)
        return stored.value if stored else transitions.created(workload, now)

    def _node_of(self, workload_id: WorkloadId) -> str:
        assignment = self._view.assignment(workload_id)
        return assignment.value.node_id if assignment else ""


def _revision(workload: Workload, spec: WorkloadSpec) -> RevisionId:
    """The revision of ``spec``; what is wished already keeps the one that it is known by.

    Another scheduler makes revisions in its own way and keeps no metadata in its specs, so of a
    workload that was taken over metadata alone makes no new one: nothing is restarted for it.
    """
    made = spec_revision(spec)
    if workload.imported is not None or workload.revision_id == spec_revision(workload.spec):
        return made
    same = evolve(spec, metadata={}) == evolve(workload.spec, metadata={})
    return workload.revision_id if same else made


def _compare(request: ApplyWorkload, stored: StoreRevision) -> None:
    expected = request.expected_revision
    if expected is None or expected == stored:
        return
    was = f"at revision {expected}" if expected else "not stored"
    now = f"at revision {stored}" if stored else "not stored"
    raise StalePlanError(
        f'stale plan: workload "{request.workload_id}" was {was} when it was planned and is {now}'
        " now; nothing was changed: plan it again and send the revision of that plan"
    )


def check_apply(request: ApplyWorkload) -> None:
    """Raise ``InvalidInputError`` that names every wrong field of ``request``."""
    errors = []
    if not is_valid_id(request.workload_id):
        errors.append(
            FieldError(
                "workload_id",
                "must be 1 to 253 characters of A-Z a-z 0-9 . _ - and start with a letter or digit",
            )
        )
    if request.spec is None and request.desired_state is None:
        errors.append(FieldError("spec", "is required, or desired_state to change that alone"))
    if request.desired_state is DesiredState.DELETED:
        errors.append(FieldError("desired_state", "use DeleteWorkload to delete"))
    if request.expected_revision is not None and request.expected_revision < 0:
        errors.append(FieldError("expected_revision", "must be 0 or more; 0 is: not stored at all"))
    if request.spec is not None:
        errors.extend(constraint_errors(request.spec.metadata))
    if errors:
        raise InvalidInputError(errors)
