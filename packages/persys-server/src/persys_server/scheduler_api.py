"""What the server needs of a scheduler replica, so that tests can give it a small one.

``persys_core.control.scheduler.Scheduler`` fits. Not decided here: anything it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

from persys_core.control.api import (
    AdmissionApi,
    AutomationApi,
    NodeOperationsApi,
    QueriesApi,
    RecoveryApi,
    VolumesApi,
)
from persys_core.control.standing import Standing
from persys_core.model.states import OperatingMode

__all__ = ["LoopAge", "ModeFacts", "SchedulerReplica", "UseCases"]


class ModeFacts(Protocol):
    """The operating mode, why, and since when."""

    @property
    def mode(self) -> OperatingMode:
        """The mode."""
        ...

    @property
    def reason(self) -> str:
        """Why it is the mode."""
        ...

    @property
    def since(self) -> datetime:
        """Since when."""
        ...


class LoopAge(Protocol):
    """A background loop, as far as probes look at it."""

    def age(self) -> timedelta:
        """How long ago it last ended a pass well."""
        ...


class UseCases(Protocol):
    """What a replica can be asked, by who asks."""

    @property
    def admission(self) -> AdmissionApi:
        """Agents and users come in here."""
        ...

    @property
    def automation(self) -> AutomationApi:
        """Policies come in here."""
        ...

    @property
    def queries(self) -> QueriesApi:
        """Reads."""
        ...

    @property
    def nodes(self) -> NodeOperationsApi:
        """Operators come in here."""
        ...

    @property
    def recovery(self) -> RecoveryApi:
        """The ways out of recovery."""
        ...

    @property
    def volumes(self) -> VolumesApi:
        """Volumes, and what operators answer for."""
        ...


class SchedulerReplica(UseCases, Protocol):
    """One replica: its use cases, its state, and its life."""

    @property
    def mode(self) -> ModeFacts:
        """The operating mode."""
        ...

    @property
    def standing(self) -> Standing:
        """Its part in the cluster, and who else is there."""
        ...

    @property
    def loops(self) -> Mapping[str, LoopAge]:
        """Its background loops by name."""
        ...

    async def start(self) -> None:
        """Load the view of the store and begin the loops."""
        ...

    async def stop(self) -> None:
        """Give up leadership and end the loops."""
        ...
