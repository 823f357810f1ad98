"""Agents: what the scheduler may ask of a node's agent, each call under its own deadline.

Three different negatives: ``Unreachable`` (nobody answered, or not in time), ``Refused`` (the
agent said no) and ``NotFound`` (it does not have the workload). None of them is an exception: a
dead node is an everyday thing. Calls to one node do not hold up calls to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeAlias

from attrs import frozen

from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport
from persys_core.model.spec import WorkloadSpec
from persys_core.model.states import DesiredState

__all__ = [
    "Accepted",
    "AgentHealth",
    "Agents",
    "ApplyRequest",
    "DeleteRequest",
    "NotFound",
    "Refused",
    "Unreachable",
]


@frozen
class ApplyRequest:
    """Make this workload be as the spec says. ``epoch`` fences: our agents refuse older ones."""

    workload_id: WorkloadId
    revision_id: RevisionId
    desired_state: DesiredState
    spec: WorkloadSpec
    epoch: int


@frozen
class DeleteRequest:
    """Remove this workload from the node. ``delete_volumes``: its data too (the user's delete)."""

    workload_id: WorkloadId
    epoch: int
    delete_volumes: bool = False


@frozen
class Accepted:
    """The agent took the request; that it was carried out shows only in later reports.

    ``skipped``: it had this revision already. ``report`` is what it answered with, if anything.
    """

    skipped: bool = False
    report: AgentReport | None = None


@frozen
class Refused:
    """The agent said no: ``code`` is stable (``rejected``, ``invalid_spec``…), text for people."""

    message: str
    code: str = "rejected"


@frozen
class NotFound:
    """The agent answered and does not have the workload."""


@frozen
class Unreachable:
    """No answer: the connection failed or the deadline passed; the call may still arrive."""

    message: str
    deadline_exceeded: bool = False


@frozen
class AgentHealth:
    """An agent's answer to a health query."""

    healthy: bool
    version: str


ApplyOutcome: TypeAlias = Accepted | Refused | Unreachable
DeleteOutcome: TypeAlias = Accepted | NotFound | Refused | Unreachable
StatusOutcome: TypeAlias = AgentReport | NotFound | Refused | Unreachable
ListOutcome: TypeAlias = Sequence[AgentReport] | Refused | Unreachable


class Agents(Protocol):
    """Connections are pooled per node, rebuilt when its endpoint changes, closed by ``forget``.

    ``timeout`` bounds the whole call including connecting.
    """

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """Ask ``node`` to bring a workload to its desired state."""
        ...

    async def delete(self, node: Node, request: DeleteRequest, timeout: timedelta) -> DeleteOutcome:
        """Ask ``node`` to remove a workload."""
        ...

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        """One workload, with the task that is in flight for it."""
        ...

    async def list(self, node: Node, timeout: timedelta) -> ListOutcome:
        """Everything that the agent has; tasks in flight do not show here."""
        ...

    async def last_error(self, node: Node, workload_id: WorkloadId, timeout: timedelta) -> str:
        """The error text of a workload's newest task where that one failed; else empty."""
        ...

    async def forget(self, node_id: NodeId) -> None:
        """The node is gone: close its connection and drop what is kept of it."""
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...
