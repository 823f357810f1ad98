"""Which reported workloads can become records again, and what keeps the others from it.

Decided here: import, skip or conflict for every workload that a node lists, as one ordered table
in which the first match wins, and a sentence for people with each. Nothing is left out, so that
what is not imported is known as well. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import NodeId, WorkloadId, is_valid_id
from persys_core.model.observation import AgentReport
from persys_core.model.states import DesiredState
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.reconcile.observe import says_gone
from persys_core.reconcile.transitions import IMPORT_ADVICE

__all__ = ["JUDGEMENTS", "Decision", "ImportItem", "Judgement", "Recorded", "plan_import"]


class Decision(StrEnum):
    """What happens to a reported workload."""

    IMPORT = "import"
    SKIP = "skip"
    CONFLICT = "conflict"
    """It cannot be told which copy is the right one: an operator has to."""


@frozen
class Recorded:
    """What is known of one workload. ``is_stored`` is false where only this replica remembers it
    from the time before the store was lost; ``owed_at`` are the nodes that owe its delete."""

    workload: Workload | None = None
    status: StatusRecord | None = None
    assignment: Assignment | None = None
    owed_at: frozenset[NodeId] = frozenset()
    is_stored: bool = True


@frozen
class ImportItem:
    """One workload as ``node_id`` reports it, what is known of it, and what is to happen."""

    node_id: NodeId
    report: AgentReport
    recorded: Recorded
    decision: Decision
    detail: str

    @property
    def workload_id(self) -> WorkloadId:
        """Whose report it is."""
        return self.report.workload_id

    @property
    def restores_spec(self) -> bool:
        """Whether its record will hold the spec that the agent has, or a newer one."""
        workload = self.recorded.workload
        if workload is None:
            return False
        return not self.recorded.is_stored or workload.revision_id == self.report.revision_id


@frozen
class _Case:
    node_id: NodeId
    report: AgentReport
    recorded: Recorded
    others: tuple[NodeId, ...]
    """Other nodes that report it as well."""
    older_than: datetime | None

    @property
    def elsewhere(self) -> NodeId:
        assignment = self.recorded.assignment
        return assignment.node_id if assignment and assignment.node_id != self.node_id else ""

    @property
    def is_kept(self) -> bool:
        """Whether it is recorded here, as it is; without recovery its reconciler sees to it."""
        workload, assignment = self.recorded.workload, self.recorded.assignment
        if workload is None or assignment is None or not self.recorded.is_stored:
            return False
        same = self.report.revision_id in ("", workload.revision_id)
        return not self.elsewhere and (same or self.older_than is not None)

    @property
    def is_newer(self) -> bool:
        if self.older_than is None:
            return False
        return self.report.created_at is None or self.report.created_at > self.older_than


@frozen
class Judgement:
    """One row; ``detail`` says to people why."""

    name: str
    when: Callable[[_Case], bool]
    decision: Decision
    detail: Callable[[_Case], str]


def _text(text: str) -> Callable[[_Case], str]:
    return lambda case: text


def _is_unwanted(case: _Case) -> bool:
    workload = case.recorded.workload
    return workload is not None and workload.desired_state is DesiredState.DELETED


def _has_same_spec(case: _Case) -> bool:
    workload = case.recorded.workload
    return workload is not None and workload.revision_id == case.report.revision_id


JUDGEMENTS: tuple[Judgement, ...] = (
    Judgement(
        "odd-id",
        lambda c: not is_valid_id(c.report.workload_id),
        Decision.SKIP,
        _text("the scheduler accepts no such id; remove it on its node"),
    ),
    Judgement(
        "gone",
        lambda c: says_gone(c.report),
        Decision.SKIP,
        _text("it is not there: the agent only keeps a note of a delete"),
    ),
    Judgement(
        "owed",
        lambda c: c.node_id in c.recorded.owed_at,
        Decision.SKIP,
        _text("its delete is owed there"),
    ),
    Judgement("unwanted", _is_unwanted, Decision.SKIP, _text("its deletion was asked for")),
    Judgement(
        "elsewhere",
        lambda c: bool(c.elsewhere),
        Decision.CONFLICT,
        lambda c: f"recorded on {c.elsewhere}: compare both copies, remove the wrong one",
    ),
    Judgement("kept", lambda c: c.is_kept, Decision.SKIP, _text("recorded already")),
    Judgement(
        "stray",
        lambda c: c.older_than is not None and c.recorded.workload is not None,
        Decision.SKIP,
        _text("recorded already, without a node"),
    ),
    Judgement(
        "twice",
        lambda c: bool(c.others),
        Decision.CONFLICT,
        lambda c: (
            f"{', '.join(c.others)} {'has' if len(c.others) == 1 else 'have'} it as well:"
            " name the one node that it is to be imported from"
        ),
    ),
    Judgement(
        "newer",
        lambda c: c.is_newer,
        Decision.SKIP,
        _text("not known to be older than this cluster's records: remove it, or apply its spec"),
    ),
    Judgement(
        "typeless",
        lambda c: c.recorded.workload is None and c.report.type is None,
        Decision.SKIP,
        _text("its agent does not say of which type it is: apply its spec"),
    ),
    Judgement(
        "remembered",
        lambda c: c.recorded.workload is not None and not c.recorded.is_stored,
        Decision.IMPORT,
        _text("restored as this replica remembers it"),
    ),
    Judgement(
        "bound",
        _has_same_spec,
        Decision.IMPORT,
        _text("its record is kept and says where it runs"),
    ),
    Judgement(
        "other-revision",
        lambda c: c.recorded.workload is not None,
        Decision.IMPORT,
        _text(f"it runs another revision than the one recorded; {IMPORT_ADVICE}"),
    ),
    Judgement("unknown", lambda c: True, Decision.IMPORT, _text(IMPORT_ADVICE)),
)


def plan_import(
    listed: Mapping[NodeId, Sequence[AgentReport]],
    recorded: Callable[[WorkloadId], Recorded],
    older_than: datetime | None = None,
) -> tuple[ImportItem, ...]:
    """What is to become of everything that ``listed`` holds, sorted by workload and node.

    ``listed`` are full lists, one per node that gave one; a node that gave none is not in it, and
    nothing follows from that. With ``older_than`` the records are whole, and only what they do not
    know at all and what is older than that is imported.
    """
    holders: dict[WorkloadId, list[NodeId]] = {}
    for node_id in sorted(listed):
        for report in listed[node_id]:
            if not says_gone(report):
                holders.setdefault(report.workload_id, []).append(node_id)
    found = []
    for node_id, reports in listed.items():
        for report in reports:
            others = [each for each in holders.get(report.workload_id, ()) if each != node_id]
            known = recorded(report.workload_id)
            case = _Case(node_id, report, known, tuple(others), older_than)
            row = next(each for each in JUDGEMENTS if each.when(case))
            found.append(ImportItem(node_id, report, known, row.decision, row.detail(case)))
    return tuple(sorted(found, key=lambda item: (item.workload_id, item.node_id)))
