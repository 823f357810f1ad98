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

from persys_core.model.states import OperatingMode
from persys_server.phase import Phase

__all__ = ["ReplicaProbe", "ReplicaState"]


@frozen
class ReplicaState:
    """The facts at one moment. ``leader_id`` is empty where no leader is known.

    ``loop_ages`` are seconds since each loop last ended a pass well. ``has_snapshot`` says whether
    the replica has a complete view of the store.
    """

    instance_id: str
    phase: Phase
    mode: OperatingMode
    mode_reason: str
    mode_changed_at: datetime
    has_snapshot: bool = True
    is_leader: bool = False
    leader_id: str = ""
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
    def role(self) -> str:
        """One word for its part in the cluster."""
        return "leader" if self.is_leader else "standby"


class ReplicaProbe(Protocol):
    """Tells the present state; never waits and never raises."""

    def __call__(self) -> ReplicaState:
        """The facts now."""
        ...
