"""Rule 12: one replica at most acts for a node; and rule 3 about epochs where several act.

Judged by what the replicas themselves believe at one moment, and by the intents in the store; the
shard map and its acknowledgements are not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import define, field

from persys_core.model.cluster import ClusterMarker
from persys_core.model.ids import NodeId
from persys_core.model.replica import HaMode, InstanceId, ShardMap
from persys_core.ports.cluster_store import Key, Kind
from persys_core.sharding.hashing import UNASSIGNED, owner_of, shard_of
from persys_core.sim.invariants import Finding, Rule, Scene
from persys_core.sim.invariants_calls import new_intents
from persys_core.sim.mirror import Step

__all__ = ["Epochs", "is_about_owners", "one_owner"]


def one_owner(
    nodes: Iterable[NodeId], acting: Iterable[tuple[InstanceId, frozenset[NodeId]]]
) -> Iterator[Finding]:
    """``acting``: per replica the nodes that it acts for at this moment, by its own belief."""
    held = list(acting)
    for node_id in (UNASSIGNED, *nodes):
        owners = sorted(replica for replica, nodes_of in held if node_id in nodes_of)
        if len(owners) > 1:
            whose = node_id or "what has no node"
            text = f"{' and '.join(owners)} act for {whose} at once"
            yield Finding(Rule.ONE_OWNER, text, (node_id,) if node_id else ())


@define(eq=False)
class Epochs:
    """Rule 3, at the commit: an intent carries the epoch of whoever owns the node at that moment.

    In elastic mode epochs are counted per node: they never go back, and each owner's are higher
    than those of the owner before it.
    """

    _last: dict[NodeId, tuple[InstanceId, int]] = field(factory=dict, init=False)

    def committed(self, scene: Scene, step: Step) -> Iterator[Finding]:
        """Judge the intents of one commit."""
        for workload_id, intent in new_intents(step):
            if problem := self._problem(scene, intent.node_id, intent.epoch):
                yield Finding(Rule.INTENT, problem, (workload_id, intent.node_id))

    def _problem(self, scene: Scene, node_id: NodeId, epoch: int) -> str:
        ha = scene.config.ha
        match ha.mode:
            case HaMode.FAILOVER:
                return _led(scene, "scheduler", epoch)
            case HaMode.ACTIVE_ACTIVE:
                return _led(scene, f"shard-{shard_of(node_id, ha.shard_count)}", epoch)
            case HaMode.ELASTIC:
                return self._owned(scene, node_id, epoch)

    def _owned(self, scene: Scene, node_id: NodeId, epoch: int) -> str:
        stored = scene.mirror.get(Key.shard_map())
        if stored is None or not isinstance(stored.value, ShardMap):
            return f"an intent of epoch {epoch} was committed, and there is no shard map"
        owner = owner_of(node_id, stored.value.members)
        if scene.mirror.get(Key.replica(owner)) is None:
            return f"an intent was committed for {owner}'s node, and {owner} is not there"
        before, last = self._last.get(node_id, ("", 0))
        self._last[node_id] = (owner, epoch)
        if epoch < last or (epoch == last and before != owner):
            return (
                f"an intent of {owner} has epoch {epoch} on {node_id}, where {before} had {last}"
                " before it"
            )
        return ""


def _led(scene: Scene, election: str, epoch: int) -> str:
    leader = scene.mirror.get(Key.leader(election))
    marker = scene.mirror.get(Key.marker())
    base = marker.value.epoch_base if marker and isinstance(marker.value, ClusterMarker) else 0
    present = base + leader.create_revision if leader else 0
    if epoch == present:
        return ""
    return f"an intent of epoch {epoch} was committed while epoch {present} leads {election}"


def is_about_owners(step: Step) -> bool:
    """Whether a commit may change who owns what."""
    kinds = {change.key.kind for change in step.touched}
    return not {Kind.SHARD_MAP, Kind.SHARD_ACK, Kind.REPLICA, Kind.LEADER}.isdisjoint(kinds)
