"""The Agents port over simulated agents: the executable statement of what the port promises.

Decided here: how an agent's reply becomes an outcome. What the network does to the call is
``sim.faults``, what the agent does ``sim.agent``.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from attrs import evolve

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport, AgentState, TaskStatus
from persys_core.model.secrets import scrubbed
from persys_core.model.spec import secret_values
from persys_core.ports.agents import (
    Accepted,
    ApplyOutcome,
    ApplyRequest,
    DeleteOutcome,
    DeleteRequest,
    ListOutcome,
    NotFound,
    Refused,
    StatusOutcome,
    Unreachable,
)
from persys_core.sim.agent import AgentModel, Reply
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.faults import NoAnswerError

__all__ = ["MemoryAgents"]

T = TypeVar("T")
_UNKNOWN_TO_AGENT = "workload not found"
_IDLE_WAIT = timedelta(seconds=1)
_LEAST_WAIT = timedelta(microseconds=1)


class MemoryAgents:
    """Calls the models of ``machines`` through their network, under their clock.

    ``calls_in_flight`` is for tests: a port that is at rest has none.
    """

    def __init__(self, machines: SimulatedMachines) -> None:
        self.calls_in_flight = 0
        self._machines = machines
        self._secrets: dict[tuple[NodeId, WorkloadId], frozenset[str]] = {}

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """As the port says."""
        secrets = secret_values(request.spec)
        self._secrets[node.id, request.workload_id] = secrets
        reply = await self._call(
            node, lambda model: self._settled(model, model.apply(request, self._now())), timeout
        )
        if isinstance(reply, Unreachable):
            return reply
        message = scrubbed(reply.message, secrets)
        if not reply.accepted:
            return Refused(message, _code(message))
        report = _clean(reply.report, secrets) if reply.report else None
        return Accepted(skipped=reply.skipped, report=report)

    async def delete(self, node: Node, request: DeleteRequest, timeout: timedelta) -> DeleteOutcome:
        """As the port says."""
        reply = await self._call(
            node, lambda model: self._settled(model, model.delete(request, self._now())), timeout
        )
        if isinstance(reply, Unreachable):
            return reply
        if reply.accepted:
            return Accepted()
        if _UNKNOWN_TO_AGENT in reply.message:
            return NotFound()
        return Refused(reply.message, _code(reply.message))

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        """As the port says."""

        async def ask(model: AgentModel) -> AgentReport | NotFound:
            return model.status(workload_id, self._now()) or NotFound()

        answer = await self._call(node, ask, timeout)
        if not isinstance(answer, AgentReport):
            return answer
        return NotFound() if _is_absent(answer) else self._cleaned(node, answer)

    async def list(self, node: Node, timeout: timedelta) -> ListOutcome:
        """As the port says."""

        async def ask(model: AgentModel) -> tuple[AgentReport, ...]:
            return model.list(self._now())

        answer = await self._call(node, ask, timeout)
        if isinstance(answer, Unreachable):
            return answer
        return tuple(self._cleaned(node, report) for report in answer)

    async def last_error(self, node: Node, workload_id: WorkloadId, timeout: timedelta) -> str:
        """As the port says."""

        async def ask(model: AgentModel) -> str:
            actions = model.actions(self._now(), workload_id=workload_id)
            newest = actions[-1] if actions else None
            return newest.error if newest and newest.status is TaskStatus.FAILED else ""

        answer = await self._call(node, ask, timeout)
        if isinstance(answer, Unreachable):
            return ""
        return scrubbed(answer, self._secrets.get((node.id, workload_id), ()))

    async def forget(self, node_id: NodeId) -> None:
        """As the port says."""
        for key in [key for key in self._secrets if key[0] == node_id]:
            del self._secrets[key]

    async def aclose(self) -> None:
        """As the port says."""
        self._secrets.clear()

    def _now(self) -> datetime:
        return self._machines.clock.now()

    async def _call(
        self, node: Node, ask: Callable[[AgentModel], Awaitable[T]], timeout: timedelta
    ) -> T | Unreachable:
        model = self._machines.find(node.id)
        if model is None or model.settings.endpoint not in ("", node.endpoint):
            return Unreachable(f"no agent of node {node.id} listens on {node.endpoint}")
        self.calls_in_flight += 1
        try:
            return await self._machines.network.call(node.id, lambda: ask(model), timeout)
        except NoAnswerError as error:
            return Unreachable(f"node {node.id}: {error}", error.deadline_exceeded)
        finally:
            self.calls_in_flight -= 1

    async def _settled(self, model: AgentModel, reply: Reply) -> Reply:
        """The reply; where the agent's queue was full it comes when the work is done."""
        while reply.task is not None:
            late = model.settled(reply.task, self._now())
            if late is not None:
                return late
            due = model.next_event_at() or self._now() + _IDLE_WAIT
            await self._machines.clock.sleep(max(due - self._now(), _LEAST_WAIT))
        return reply

    def _cleaned(self, node: Node, report: AgentReport) -> AgentReport:
        return _clean(report, self._secrets.get((node.id, report.workload_id), ()))


def _clean(report: AgentReport, secrets: Iterable[str]) -> AgentReport:
    return evolve(
        report,
        message=scrubbed(report.message, secrets),
        metadata={key: scrubbed(value, secrets) for key, value in report.metadata.items()},
    )


def _code(message: str) -> str:
    """The agents' ``[CODE]`` in lower case; ``rejected`` where a text has none."""
    found = re.search(r"\[([A-Z][A-Z_]+)\]", message)
    return found[1].lower() if found else "rejected"


def _is_absent(report: AgentReport) -> bool:
    """Whether the report only says that the delete of an unknown workload failed."""
    return report.state is AgentState.FAILED and (
        report.message.startswith("failed to delete workload")
        and _UNKNOWN_TO_AGENT in report.message
    )
