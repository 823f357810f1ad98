"""Term: what the loops of one leadership share. A new leadership gets a new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta

from attrs import field, frozen

from persys_core.control.agent_calls import AgentCalls, NodeReach
from persys_core.control.committer import Committer, LeadershipLostError
from persys_core.control.config import SchedulerConfig, SchedulerPorts
from persys_core.control.events import EventPublisher
from persys_core.control.node_views import NodeViews
from persys_core.control.observations import Observations
from persys_core.control.ownership import Ownership
from persys_core.control.placing import Placing
from persys_core.control.view import ClusterView
from persys_core.control.work import Work
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Committed, Conflict, Kind
from persys_core.ports.membership import Leadership

__all__ = ["AGAIN", "STAYS", "Next", "Stays", "Term"]


class _Again:
    """The type of ``AGAIN``."""


AGAIN = _Again()
"""Look at the workload once more at once: something changed."""


class Stays:
    """The type of ``STAYS``."""


STAYS = Stays()
"""The workload cannot leave its node now: decide again as if it did not have to."""

Next = timedelta | _Again | None
"""What follows a step: look again at once, after a while, or when something changes."""


@frozen
class Term:
    """Everything that a step uses, under the leadership that it acts for."""

    leadership: Leadership
    ownership: Ownership
    view: ClusterView
    committer: Committer
    placing: Placing
    observations: Observations
    node_views: NodeViews
    reach: NodeReach
    calls: AgentCalls
    events: EventPublisher
    ports: SchedulerPorts
    config: SchedulerConfig
    requeue: Callable[[Work, timedelta], None]
    may_act: Callable[[], bool]
    may_move: Callable[[NodeId], bool]
    takes_up: Callable[[Work], bool]
    """Whether the work is this replica's now; asked before each look, which is then under way."""
    looking_at: Callable[[Work], AbstractContextManager[None]]
    step_down: Callable[[], None]
    """Ends the term: the store does not know this leader (any more)."""
    blocked: dict[WorkloadId, str] = field(factory=dict)
    """Why a workload cannot leave its node, as it was told last."""

    def epoch(self, node_id: NodeId) -> int:
        """What stands in every intent and call about the node; see ``ClusterMarker``."""
        marker = self.view.marker()
        base = marker.value.epoch_base if marker else 0
        return self.ownership.epoch(node_id, base)

    def now(self) -> datetime:
        """The clock's instant."""
        return self.ports.clock.now()

    def condition(self, node_id: NodeId) -> NodeCondition:
        """The node as decisions see it; a lost one only once the limiter lets its work move."""
        condition = self.node_views.condition(node_id)
        if condition is NodeCondition.LOST and not self.may_move(node_id):
            return NodeCondition.NOT_READY
        return condition

    def uncallable_since(self, node_id: NodeId) -> datetime | None:
        """Since when the agent answers no call although it beats, if that lasts long enough."""
        return self.reach.uncallable_since(node_id, len(self.view.all(Kind.NODE)))

    async def commit(self, tx: Transaction) -> bool:
        """Commit under the fence; False where another writer was first (decide anew)."""
        try:
            guarded = self.ownership.guard(tx)
            result: Committed | Conflict = await self.committer.commit(guarded, self.leadership)
        except LeadershipLostError:
            # A lease that still runs is worth nothing without its fence (a restored store lacks
            # the record of who was elected after the backup): campaign for a new one.
            self.step_down()
            raise
        return isinstance(result, Committed)

    async def confirms(self, read: Transaction) -> bool:
        """Whether what was read of the view stands in the store; if not, the view knows now."""
        return isinstance(await self.committer.compare(read, self.leadership), Committed)

    def until(self, at: datetime | None, otherwise: timedelta) -> timedelta:
        """How long to wait for ``at``; ``otherwise`` where there is no such instant."""
        if at is None:
            return otherwise
        return max(at - self.now(), timedelta(milliseconds=1))
