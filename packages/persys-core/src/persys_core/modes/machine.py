"""Normal, degraded, recovery: when the control plane freezes, and what it may do then.

Decided here: the next mode for each event, as one total table, and what each mode permits. Not
decided here: how a store is probed, or where what is known of the cluster is kept (the mode
supervisor). Pure.

============== ================== =================== ======================
event          normal             degraded            recovery
============== ================== =================== ======================
probe ok       count = 0          stays               stays
probe failed   degraded at 3      stays               stays
op. exhausted  degraded           stays               stays
space exceeded degraded (space)   stays (space)       stays
probe written  count = 0          normal if by space  stays
data whole     count = 0          normal, not by      normal, unless work
                                  space               was seen while fresh
data lost (1)  recovery           recovery            stays, with the cause
acknowledged   stays              stays               normal
============== ================== =================== ======================

(1) marker missing, other cluster, revision rewound, work reported while fresh.

An answer of the store alone never ends a freeze: the data must be proven whole (``judge_store``),
or an operator says what to make of it. So a wiped store is never taken for *delete everything*
(defect A3), and a new cluster that had one bad moment goes on as normal (defect A4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from attrs import evolve, frozen

from persys_core.model.event import capped
from persys_core.model.states import OperatingMode

__all__ = [
    "TRANSITIONS",
    "Cause",
    "ModeEvent",
    "ModePolicy",
    "ModeState",
    "Permissions",
    "frozen_text",
    "next_mode",
    "permits",
    "tells_drain",
]


class Cause(StrEnum):
    """Why the control plane is frozen; stable."""

    NONE = ""
    UNAVAILABLE = "unavailable"
    SPACE = "space"
    MARKER_MISSING = "marker_missing"
    CLUSTER_CHANGED = "cluster_changed"
    REWOUND = "rewound"
    WORK_WHILE_FRESH = "work_while_fresh"


class ModeEvent(StrEnum):
    """What the supervisor saw, or an operator did."""

    PROBE_OK = "probe_ok"
    """The store answered a read."""
    PROBE_FAILED = "probe_failed"
    OPERATION_EXHAUSTED = "operation_exhausted"
    """An operation failed for want of a store, after all its tries."""
    SPACE_EXCEEDED = "space_exceeded"
    """The store refuses what adds to it; reads and deletes still work (field report E05)."""
    PROBE_WRITTEN = "probe_written"
    """A put of the probe key succeeded."""
    DATA_WHOLE = "data_whole"
    """The marker is there, of this cluster, at no lower revision; or the cluster is new."""
    MARKER_MISSING = "marker_missing"
    CLUSTER_CHANGED = "cluster_changed"
    REVISION_REWOUND = "revision_rewound"
    WORK_WHILE_FRESH = "work_while_fresh"
    """An agent runs work of ours, and the store says that nothing was ever placed."""
    ACKNOWLEDGED = "acknowledged"
    """An operator imported from the agents, or confirmed the store as it is."""


@frozen
class ModePolicy:
    """``probe_failures`` in a row degrade; ``drain_after``: agents are told to hold after this."""

    probe_failures: int = 3
    drain_after: timedelta = timedelta(seconds=60)


@frozen
class ModeState:
    """The mode, why and since when; ``frozen_since`` lasts from degraded into recovery."""

    mode: OperatingMode
    reason: str
    since: datetime
    cause: Cause = Cause.NONE
    failed_probes: int = 0
    frozen_since: datetime | None = None

    @classmethod
    def started(cls, now: datetime) -> ModeState:
        """A replica that begins. It serves only after the store was judged once."""
        return cls(OperatingMode.NORMAL, "startup", now)

    @property
    def is_recovery(self) -> bool:
        """Whether an operator has to say what the store's data is."""
        return self.mode is OperatingMode.RECOVERY


@frozen
class Permissions:
    """What a mode lets happen. Reads are always served, with their age."""

    mutate: bool
    """Any commit of a user's or an operator's wish."""
    delete_only: bool
    """Commits that only remove records."""
    act: bool
    """The loops: placing, reconciling, moving, drift remedies, agent calls."""
    read: bool = True


def permits(mode: OperatingMode, cause: Cause = Cause.NONE) -> Permissions:
    """What may be done in ``mode``; ``cause`` refines degraded."""
    match mode:
        case OperatingMode.NORMAL:
            return Permissions(mutate=True, delete_only=True, act=True)
        case OperatingMode.DEGRADED:
            return Permissions(mutate=False, delete_only=cause is Cause.SPACE, act=False)
        case OperatingMode.RECOVERY:
            return Permissions(mutate=False, delete_only=False, act=False)


def next_mode(
    state: ModeState,
    event: ModeEvent,
    now: datetime,
    *,
    detail: str = "",
    policy: ModePolicy = ModePolicy(),
) -> ModeState:
    """The state after ``event``; the very same object where nothing changed.

    ``detail``: what was found, for people (an error text, two revisions); without secrets.
    """
    return TRANSITIONS[state.mode, event](_Case(state, event, now, detail, policy))


def tells_drain(
    state: ModeState,
    now: datetime,
    policy: ModePolicy = ModePolicy(),
) -> bool:
    """Whether agents are told ``drain_node``: accept no new apply, leave alone what runs."""
    return state.frozen_since is not None and now - state.frozen_since >= policy.drain_after


def frozen_text(state: ModeState) -> str:
    """What a refused caller is told, and what can be done about it."""
    advice = (
        "bring the data back, import it from the agents, or acknowledge the store as it is"
        if state.mode is OperatingMode.RECOVERY
        else "reads are served; try again when the store answers"
    )
    if state.cause is Cause.SPACE:
        advice = "deletes still work; compact and defragment the store, or raise its quota"
    since = state.since.isoformat(timespec="seconds")
    return capped(
        f"scheduler degraded/recovery mode; control plane frozen: {state.mode} since {since}:"
        f" {state.reason}; {advice}"
    )


@frozen
class _Case:
    state: ModeState
    event: ModeEvent
    now: datetime
    detail: str
    policy: ModePolicy


_REASONS: Mapping[Cause, str] = {
    Cause.NONE: "the store answers and its data is whole",
    Cause.UNAVAILABLE: "store unavailable",
    Cause.SPACE: "store out of space",
    Cause.MARKER_MISSING: "the store answers, but this cluster's marker is missing",
    Cause.CLUSTER_CHANGED: "the store answers, but it is another cluster's",
    Cause.REWOUND: "the store answers, but it went back",
    Cause.WORK_WHILE_FRESH: "agents run workloads, but the store says that none was ever placed",
}
_LOSSES: Mapping[ModeEvent, Cause] = {
    ModeEvent.MARKER_MISSING: Cause.MARKER_MISSING,
    ModeEvent.CLUSTER_CHANGED: Cause.CLUSTER_CHANGED,
    ModeEvent.REVISION_REWOUND: Cause.REWOUND,
    ModeEvent.WORK_WHILE_FRESH: Cause.WORK_WHILE_FRESH,
}


def _enter(case: _Case, mode: OperatingMode, cause: Cause) -> ModeState:
    if (case.state.mode, case.state.cause) == (mode, cause):
        return case.state
    detail = f": {case.detail}" if case.detail else ""
    same_mode = case.state.mode is mode
    is_frozen = mode is not OperatingMode.NORMAL
    return ModeState(
        mode,
        capped(_REASONS[cause] + detail),
        case.state.since if same_mode else case.now,
        cause,
        failed_probes=case.state.failed_probes if is_frozen else 0,
        frozen_since=(case.state.frozen_since or case.now) if is_frozen else None,
    )


def _stay(case: _Case) -> ModeState:
    return case.state


def _forget_failures(case: _Case) -> ModeState:
    return evolve(case.state, failed_probes=0) if case.state.failed_probes else case.state


def _count_failure(case: _Case) -> ModeState:
    counted = evolve(case.state, failed_probes=case.state.failed_probes + 1)
    if counted.failed_probes < case.policy.probe_failures:
        return counted
    return _degrade(evolve(case, state=counted))


def _degrade(case: _Case) -> ModeState:
    return _enter(case, OperatingMode.DEGRADED, Cause.UNAVAILABLE)


def _degrade_by_space(case: _Case) -> ModeState:
    return _enter(case, OperatingMode.DEGRADED, Cause.SPACE)


def _recover(case: _Case) -> ModeState:
    return _enter(case, OperatingMode.RECOVERY, _LOSSES[case.event])


def _thaw(case: _Case) -> ModeState:
    return _enter(case, OperatingMode.NORMAL, Cause.NONE)


def _thaw_unless(cause: Cause) -> Callable[[_Case], ModeState]:
    return lambda case: case.state if case.state.cause is cause else _thaw(case)


def _thaw_space(case: _Case) -> ModeState:
    return _thaw(case) if case.state.cause is Cause.SPACE else case.state


_Transition = Callable[[_Case], ModeState]
_ROWS: Mapping[ModeEvent, tuple[_Transition, _Transition, _Transition]] = {
    # event: normal, degraded, recovery
    ModeEvent.PROBE_OK: (_forget_failures, _stay, _stay),
    ModeEvent.PROBE_FAILED: (_count_failure, _stay, _stay),
    ModeEvent.OPERATION_EXHAUSTED: (_degrade, _stay, _stay),
    ModeEvent.SPACE_EXCEEDED: (_degrade_by_space, _degrade_by_space, _stay),
    ModeEvent.PROBE_WRITTEN: (_forget_failures, _thaw_space, _stay),
    # Reads prove nothing about space; work seen on a fresh store is not disproved by its marker.
    ModeEvent.DATA_WHOLE: (
        _forget_failures,
        _thaw_unless(Cause.SPACE),
        _thaw_unless(Cause.WORK_WHILE_FRESH),
    ),
    ModeEvent.MARKER_MISSING: (_recover, _recover, _recover),
    ModeEvent.CLUSTER_CHANGED: (_recover, _recover, _recover),
    ModeEvent.REVISION_REWOUND: (_recover, _recover, _recover),
    ModeEvent.WORK_WHILE_FRESH: (_recover, _recover, _recover),
    ModeEvent.ACKNOWLEDGED: (_stay, _stay, _thaw),
}
_MODES = (OperatingMode.NORMAL, OperatingMode.DEGRADED, OperatingMode.RECOVERY)
TRANSITIONS: Mapping[tuple[OperatingMode, ModeEvent], _Transition] = {
    (mode, event): row[column] for event, row in _ROWS.items() for column, mode in enumerate(_MODES)
}
"""The whole table; a test asserts that no pair is missing."""
