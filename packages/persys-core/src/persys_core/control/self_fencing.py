"""Self-fencing: what follows from an agent's promise to stop exclusive work when it hears nothing.

Decided here: when a silent node counts as fenced although no operator says so. Its agent stops work
that one node at a time may do once its lease has been over for ``stop_after``; we wait for as long
after the lease ended here, which is never sooner than there, and for a margin that such a stop may
take. Only nodes that hold a volume are fenced, and the fence ends as any other: when the node is
heard. An agent without that promise is never fenced by silence (decisions §4).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import define, evolve

from persys_core.control.committer import LeadershipLostError
from persys_core.control.term import Term
from persys_core.model.errors import FrozenError
from persys_core.model.event import EventType
from persys_core.model.ids import NodeId
from persys_core.model.node import Fence, Node
from persys_core.model.volume import Volume
from persys_core.nodes.liveness import NodeCondition
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key, Kind, StoreUnavailableError
from persys_core.volumes.claims import stands
from persys_core.volumes.outcome import Outcome

__all__ = ["STOPS_WITHIN", "SelfFencing"]

STOPS_WITHIN = timedelta(seconds=30)
"""How long an agent may take to stop what it stops by itself."""
_BY = "its agent"


@define(eq=False)
class SelfFencing:
    """The body of a loop of one term."""

    _term: Term

    async def run(self) -> None:
        """Fence every owned node whose time is over."""
        if not self._term.may_act():
            return
        due = [node for node in self._promised() if self._is_due(node)]
        if not due:
            return
        holders = self._holders()
        for node in due:
            if node.id in holders:
                try:
                    await self._fence(node)
                except (LeadershipLostError, StoreUnavailableError, FrozenError):
                    return

    def _promised(self) -> list[Node]:
        nodes = self._term.view.values(Kind.NODE, Node)
        owns = self._term.ownership.owns
        return [
            each for each in nodes if each.stop_after_seconds and not each.fence and owns(each.id)
        ]

    def _is_due(self, node: Node) -> bool:
        if self._term.node_views.condition(node.id) is NodeCondition.READY:
            return False
        expired = self._term.ports.liveness.expired_since(node.id)
        return expired is not None and self._term.now() >= _over_at(expired, node)

    def _holders(self) -> frozenset[NodeId]:
        after = Outcome(self._term.view)
        claims = (stands(each, after) for each in self._term.view.values(Kind.VOLUME, Volume))
        return frozenset(claim.node_id for claim in claims if claim is not None)

    async def _fence(self, node: Node) -> None:
        stored = self._term.view.node(node.id)
        if stored is None or stored.value is not node:
            return
        reason = (
            "silent for so long that its agent has stopped exclusive work by itself"
            f" ({node.stop_after_seconds} s after its lease)"
        )
        fenced = evolve(node, fence=Fence(self._term.now(), reason, _BY))
        if await self._term.commit(Transaction().put(Key.node(node.id), fenced, stored)):
            self._term.events.publish(
                EventType.NODE_FENCED, node_id=node.id, reason=reason, details={"source": _BY}
            )


def _over_at(expired: datetime, node: Node) -> datetime:
    return expired + timedelta(seconds=node.stop_after_seconds) + STOPS_WITHIN
