"""libvirt's states of a domain in the words of agents.

Decided here: which of them runs, waits, has stopped or has failed, and the texts, which are those
of the reference agent: ``running (reason=booted)``. The numbers are libvirt's stable ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from persys_core.model.observation import AgentState

__all__ = ["DomainState", "domain_state", "is_active"]

_NAMES = (
    "nostate",
    "running",
    "blocked",
    "paused",
    "shutdown",
    "shutoff",
    "crashed",
    "pmsuspended",
)
_RUNNING, _PAUSED, _SHUTDOWN, _SHUTOFF, _CRASHED, _SUSPENDED = 1, 3, 4, 5, 6, 7
_REASONS: Mapping[int, tuple[str, ...]] = {
    _RUNNING: (
        "unknown", "booted", "migrated", "restored", "from_snapshot", "unpaused",
        "migration_canceled", "save_canceled", "wakeup", "crashed", "postcopy", "postcopy_failed",
    ),
    _PAUSED: (
        "unknown", "user", "migration", "save", "dump", "ioerror", "watchdog", "from_snapshot",
        "shutting_down", "snapshot", "crashed", "starting_up", "postcopy", "postcopy_failed",
    ),
    _SHUTDOWN: ("unknown", "user"),
    _SHUTOFF: (
        "unknown", "shutdown", "destroyed", "crashed", "migrated", "saved", "failed",
        "from_snapshot", "daemon",
    ),
    _CRASHED: ("unknown", "panicked"),
}  # fmt: skip
_FAILED_ENDS = frozenset({"crashed", "failed"})


@frozen
class DomainState:
    """What to report of a domain."""

    state: AgentState
    message: str
    metadata: Mapping[str, str]


def is_active(code: int) -> bool:
    """Whether there is a process behind the domain."""
    return code not in {0, _SHUTOFF}


def domain_state(code: int, reason_code: int) -> DomainState:
    """The report of a domain in state ``code`` for ``reason_code``."""
    name = _NAMES[code] if code < len(_NAMES) else "unknown"
    reasons = _REASONS.get(code, ())
    reason = reasons[reason_code] if reason_code < len(reasons) else "unknown"
    metadata = {
        "vm.domain_state": name,
        "vm.domain_state_code": str(code),
        "vm.domain_reason": reason,
        "vm.domain_reason_code": str(reason_code),
    }
    state, word = _state(code, name, reason)
    return DomainState(state, f"{word}reason={reason})", metadata)


def _state(code: int, name: str, reason: str) -> tuple[AgentState, str]:
    if code == _RUNNING:
        return AgentState.RUNNING, "running ("
    if code == _PAUSED:
        return AgentState.PENDING, "paused (runtime frozen, "
    if code == _CRASHED or (code == _SHUTOFF and reason in _FAILED_ENDS):
        return AgentState.FAILED, "crashed ("
    if code in {_SHUTDOWN, _SHUTOFF}:
        return AgentState.STOPPED, "shutdown ("
    return (AgentState.PENDING if code < _SUSPENDED else AgentState.UNKNOWN), f"{name} ("
