"""What this replica says of itself to people and probes, as one value.

Decided here: which facts those are, and when a replica counts as ready (decisions, values:
health): it is not ready only where it cannot serve. Mode, leadership and the age of loops are
told, and decide nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from attrs import field, frozen

from persys_core.control.standing import Standing
from persys_core.model.replica import HaMode, ReplicaRecord
from persys_core.model.states import OperatingMode
from persys_server.phase import Phase

__all__ = ["ReplicaProbe", "ReplicaState", "shard_words"]


@frozen
class ReplicaState:
    """The facts at one moment.

    ``loop_ages`` are seconds since each loop last ended a pass well. ``has_snapshot`` says whether
    the replica has a complete view of the store.
    """

    standing: Standing
    phase: Phase
    mode: OperatingMode
    mode_reason: str
    mode_changed_at: datetime
    has_snapshot: bool = True
    loop_ages: Mapping[str, float] = field(factory=dict)

    @property
    def is_ready(self) -> bool:
        """Whether this replica can serve requests."""
        return self.phase is Phase.SERVING and self.has_snapshot

    @property
    def not_ready_reason(self) -> str:
        """Why it cannot; empty where it can."""
        if self.phase is not Phase.SERVING:
            return str(self.phase)
        return "" if self.has_snapshot else "no snapshot of the state store yet"

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the division of the cluster among its replicas, for people."""
        at = self.standing
        told = (
            (
                at.foreign_leader,
                f"mutations refused: another scheduler leads ({at.foreign_leader})",
            ),
            (at.unowned_nodes, f"nodes without an owner: {at.unowned_nodes}"),
            (at.doubly_owned_nodes, f"nodes with two owners: {at.doubly_owned_nodes}"),
        )
        return tuple(text for holds, text in told if holds)


def shard_words(record: ReplicaRecord) -> str:
    """The fixed shard of a replica as it is written, ``0/3``; empty where it has none."""
    if record.ha_mode is not HaMode.ACTIVE_ACTIVE:
        return ""
    return f"{record.shard_index}/{record.shard_count}"


class ReplicaProbe(Protocol):
    """Tells the present state; never waits and never raises."""

    def __call__(self) -> ReplicaState:
        """The facts now."""
        ...
