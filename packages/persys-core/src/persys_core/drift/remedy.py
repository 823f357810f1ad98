"""What is done about a drift: an ordered table over a handful of facts, first match wins.

Decided here: the remedy, and why it is not the one that the policy asks for. A workload that is
assigned to the node is the reconciler's alone, whatever the type: there is no second path to an
agent. When in doubt about an orphan nothing is done, and an operator is told. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from attrs import frozen

from persys_core.drift.classify import OrphanKind
from persys_core.model.drift import DriftAction, DriftType, OrphanPolicy

__all__ = ["LISTINGS_TO_DELETE", "REMEDIES", "Age", "Facts", "Remedy", "choose_remedy"]

LISTINGS_TO_DELETE = 3
"""Full listings in a row that must show an orphan before it may be deleted."""


class Age(StrEnum):
    """An orphan's age, compared with the cluster marker's (defect A3)."""

    NEWER = "newer"
    OLDER = "older"
    """It was there before this cluster's records began: data of another life of the cluster."""
    UNTOLD = "untold"
    """Its agent does not say since when it has it."""


@frozen
class Facts:
    """What a remedy depends on; all but ``type`` and ``policy`` are about orphans.

    ``same_revision``: the agent has the revision that is wished. ``wanted``: it is to run or to
    rest, and was not given up. ``has_room``: the reporting node takes work, and it fits there.
    ``sound_elsewhere``: the copy on the assigned node is as recorded, that node is heard, and the
    data is not here.
    """

    type: DriftType
    policy: OrphanPolicy = OrphanPolicy.REPORT
    kind: OrphanKind = OrphanKind.UNKNOWN
    age: Age = Age.UNTOLD
    sighted_enough: bool = False
    same_revision: bool = False
    wanted: bool = False
    has_room: bool = False
    sound_elsewhere: bool = False


@frozen
class Remedy:
    """One row; ``note`` is told where an operator must act, and why."""

    name: str
    when: Callable[[Facts], bool]
    action: DriftAction
    note: str = ""


def _is(kind: DriftType) -> Callable[[Facts], bool]:
    return lambda facts: facts.type is kind


def _policy(policy: OrphanPolicy, also: Callable[[Facts], bool]) -> Callable[[Facts], bool]:
    return lambda facts: facts.policy is policy and also(facts)


def _kind(kind: OrphanKind) -> Callable[[Facts], bool]:
    return lambda facts: facts.kind is kind


_ADOPT = OrphanPolicy.ADOPT

REMEDIES: tuple[Remedy, ...] = (
    Remedy("state", _is(DriftType.STATE_MISMATCH), DriftAction.ALIGN),
    Remedy("revision", _is(DriftType.REVISION_MISMATCH), DriftAction.REAPPLY),
    Remedy("missing", _is(DriftType.MISSING_ON_AGENT), DriftAction.RECONCILE),
    Remedy(
        "report",
        lambda f: f.policy is OrphanPolicy.REPORT,
        DriftAction.INVESTIGATE,
        "the orphan policy is report: remove it on its node, or change the policy",
    ),
    Remedy(
        "adopt-unknown",
        _policy(_ADOPT, _kind(OrphanKind.UNKNOWN)),
        DriftAction.INVESTIGATE,
        "not adopted: agents do not report specs; apply it under its id first",
    ),
    Remedy(
        "adopt-residual",
        _policy(_ADOPT, _kind(OrphanKind.RESIDUAL)),
        DriftAction.INVESTIGATE,
        "not adopted: its deletion was asked for",
    ),
    Remedy(
        "adopt-duplicate",
        _policy(_ADOPT, _kind(OrphanKind.DUPLICATE)),
        DriftAction.INVESTIGATE,
        "not adopted: it is assigned to another node",
    ),
    Remedy(
        "adopt-unwanted",
        _policy(_ADOPT, lambda f: not f.wanted),
        DriftAction.INVESTIGATE,
        "not adopted: the workload was given up; retry it first",
    ),
    Remedy(
        "adopt-other-revision",
        _policy(_ADOPT, lambda f: not f.same_revision),
        DriftAction.INVESTIGATE,
        "not adopted: the agent has another revision than the one that is wished",
    ),
    Remedy(
        "adopt-no-room",
        _policy(_ADOPT, lambda f: not f.has_room),
        DriftAction.INVESTIGATE,
        "not adopted: the node takes no work, or has no room left for it",
    ),
    Remedy("adopt", _policy(_ADOPT, lambda f: True), DriftAction.ADOPT),
    Remedy(
        "delete-older",
        lambda f: f.age is Age.OLDER,
        DriftAction.INVESTIGATE,
        "not deleted: it is older than this cluster's records, so it may have to be imported",
    ),
    Remedy(
        "delete-untold",
        lambda f: f.age is Age.UNTOLD,
        DriftAction.INVESTIGATE,
        "not deleted: its agent does not say since when it has it",
    ),
    Remedy(
        "delete-stray",
        _kind(OrphanKind.STRAY),
        DriftAction.INVESTIGATE,
        "not deleted: the workload is known and has no node; the policy adopt may keep it",
    ),
    Remedy(
        "delete-only-copy",
        lambda f: f.kind is OrphanKind.DUPLICATE and not f.sound_elsewhere,
        DriftAction.INVESTIGATE,
        "not deleted: the copy on its own node is not sound, that node is silent, or its data is"
        " here",
    ),
    Remedy("delete-later", lambda f: not f.sighted_enough, DriftAction.AWAIT_SIGHTINGS),
    Remedy("delete-residual", _kind(OrphanKind.RESIDUAL), DriftAction.DELETE_RESIDUAL),
    Remedy("delete-duplicate", _kind(OrphanKind.DUPLICATE), DriftAction.DELETE_DUPLICATE),
    Remedy("delete-unknown", lambda f: True, DriftAction.DELETE_ORPHAN),
)


def choose_remedy(facts: Facts) -> Remedy:
    """The first row whose condition holds; there always is one."""
    return next(row for row in REMEDIES if row.when(facts))
