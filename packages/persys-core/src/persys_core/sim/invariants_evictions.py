"""Rule 11: how fast work leaves lost nodes, and that none does when most fell silent at once.

Judged by node leases and by what left which node, apart from the plan of ``nodes.eviction``. The
leader looks every second and its commits travel, so everything here has some seconds of slack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from attrs import define, field, frozen

from persys_core.model.event import Event, EventType
from persys_core.model.ids import NodeId
from persys_core.model.node import Node
from persys_core.model.workload import Assignment
from persys_core.ports.cluster_store import Kind
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.invariants_calls import is_lost
from persys_core.sim.mirror import Step, Touched

__all__ = ["Evictions", "is_mass_loss"]

_TRAVELS = timedelta(seconds=10)
_NOTICED_WITHIN = timedelta(seconds=30)
_CALM_AFTER = timedelta(seconds=20)
"""Nothing moves for one lease after a mass loss, and that may have ended some seconds earlier."""
_WINDOW = timedelta(seconds=30)
_NODES_PER_WINDOW = 5
"""One per ten seconds, one at the beginning, and one whose commit was slow."""


@frozen
class _Leaving:
    """A lost node that work began to leave, in which of its silences, and under whom."""

    node_id: NodeId
    silent_since: datetime
    leader: str
    at: datetime


@define(eq=False)
class Evictions:
    """Follows one run. ``leader``: who leads and is not frozen; empty for nobody."""

    scene: Scene
    leader: Callable[[], str]
    losses: int = field(default=0, init=False)
    _mass_since: datetime | None = field(default=None, init=False)
    _mass_seen_at: datetime | None = field(default=None, init=False)
    _leads: tuple[str, datetime] | None = field(default=None, init=False)
    _told_at: datetime | None = field(default=None, init=False)
    _leaving: list[_Leaving] = field(factory=list, init=False)

    def heard(self, event: Event) -> None:
        """An event was published."""
        if event.type is EventType.MASS_NODE_LOSS:
            self._told_at = event.timestamp

    def look(self) -> Iterator[Finding]:
        """Every few seconds: is most of the cluster silent, and was that told?"""
        now = self.scene.now()
        leader = self.leader()
        if self._leads is None or leader != self._leads[0]:
            self._leads = (leader, now)
        self._follow_mass(now)
        since = self._mass_since
        if since is None or not leader:
            return
        known_since = max(since, self._leads[1])
        told = self._told_at is not None and self._told_at >= since - _TRAVELS
        if now - known_since > _NOTICED_WITHIN and not told:
            text = f"most nodes are silent since {since:%H:%M:%S}, and no MassNodeLoss tells of it"
            yield Finding(Rule.EVICTIONS, text, ())

    def committed(self, step: Step) -> Iterator[Finding]:
        """Work may have left a lost node."""
        for change in step.touched:
            node_id = self._left(change, step.at)
            if node_id:
                yield from self._judge(node_id, step.at)

    def _left(self, change: Touched, at: datetime) -> NodeId:
        """The lost node that a share was taken from without its user's word; empty for none."""
        before, after = change.before, change.after
        if not isinstance(before, Assignment) or before.released:
            return ""
        stays = isinstance(after, Assignment) and after.node_id == before.node_id
        by_user = self.scene.wishes.wants_delete(before.workload_id)
        lost = is_lost(self.scene, before.node_id, at)
        known = self.scene.mirror.node(before.node_id) is not None
        return before.node_id if lost and known and not stays and not by_user else ""

    def _judge(self, node_id: NodeId, at: datetime) -> Iterator[Finding]:
        self._follow_mass(at)
        since, seen_at = self._mass_since, self._mass_seen_at
        if since is not None and seen_at is not None and seen_at - since >= _TRAVELS:
            text = f"work leaves it although most nodes were silent from {since:%H:%M:%S} on"
            yield Finding(Rule.EVICTIONS, text, (node_id,))
        yield from self._too_many(node_id, at)

    def _too_many(self, node_id: NodeId, at: datetime) -> Iterator[Finding]:
        silent_since = self.scene.liveness.expired_since(node_id) or at
        leaving = _Leaving(node_id, silent_since, self.leader(), at)
        known = any(
            (each.node_id, each.silent_since, each.leader)
            == (node_id, silent_since, leaving.leader)
            for each in self._leaving
        )
        if known:
            return
        self._leaving.append(leaving)
        lately = [
            each
            for each in self._leaving
            if each.leader == leaving.leader and at - each.at <= _WINDOW
        ]
        if len(lately) > _NODES_PER_WINDOW:
            text = f"it is the {len(lately)}th lost node that work leaves within {_WINDOW}"
            yield Finding(Rule.EVICTIONS, text, (node_id,))

    def _follow_mass(self, now: datetime) -> None:
        """One that is over for a moment only is the same."""
        if is_mass_loss(self.scene):
            self._mass_seen_at = now
            if self._mass_since is None:
                self._mass_since = now
                self.losses += 1
        elif self._mass_seen_at is not None and now - self._mass_seen_at > _CALM_AFTER:
            self._mass_since = self._mass_seen_at = None


def is_mass_loss(scene: Scene) -> bool:
    """Whether more than half of the nodes, and three or more, fell silent within one lease. Those
    that were silent before are no part of the half."""
    nodes = [node.id for node in scene.mirror.values(Kind.NODE, Node)]
    ends = [end for node in nodes if (end := scene.liveness.expired_since(node)) is not None]
    lease = scene.config.liveness.lease
    for last in ends:
        together = sum(last - lease <= end <= last for end in ends)
        before = sum(end < last - lease for end in ends)
        if together >= 3 and 2 * together > len(nodes) - before:
            return True
    return False
