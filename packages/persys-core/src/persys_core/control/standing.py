"""Standing: what one replica is among the others, for people, probes and metrics."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from persys_core.control.config import HaConfig
from persys_core.control.ownership import seats_in
from persys_core.control.view import ClusterView
from persys_core.model.ids import NodeId
from persys_core.model.replica import HaMode, InstanceId, ReplicaRecord
from persys_core.ports.cluster_store import Kind
from persys_core.sharding.coverage import Coverage, coverage_of_members, coverage_of_shards
from persys_core.sharding.hand_over import Seats

__all__ = ["FAILOVER_ELECTION", "Standing", "coverage_of", "election_of", "standing_of"]

FAILOVER_ELECTION = "scheduler"


@frozen
class Standing:
    """``role``: leader or standby; in elastic mode owner, or joining before it has
    acknowledged the map.

    ``leader_id``: who leads (failover), who leads this replica's shard (active-active), who keeps
    the shard map (elastic); empty where nobody does. ``foreign_leader``: an instance that leads
    without being registered, hence a scheduler that is not ours; empty where there is none.
    The numbers count nodes as this replica sees them.
    """

    instance_id: InstanceId
    ha_mode: HaMode = HaMode.FAILOVER
    role: str = "standby"
    shard: str = ""
    leader_id: InstanceId = ""
    owned_nodes: int = 0
    unowned_nodes: int = 0
    doubly_owned_nodes: int = 0
    replicas: tuple[ReplicaRecord, ...] = ()
    foreign_leader: InstanceId = ""


def election_of(config: HaConfig) -> str:
    """The election that a replica stands in; in elastic mode the one for the map."""
    match config.mode:
        case HaMode.FAILOVER:
            return FAILOVER_ELECTION
        case HaMode.ACTIVE_ACTIVE:
            return f"shard-{config.shard_index}"
        case HaMode.ELASTIC:
            return "coordinator"


def coverage_of(view: ClusterView, config: HaConfig, leaders: Sequence[InstanceId]) -> Coverage:
    """Which nodes have an owner. ``leaders``: per shard who leads it, empty where nobody does; one
    entry in failover mode, none needed in elastic mode."""
    nodes: Sequence[NodeId] = sorted(view.all(Kind.NODE))
    if config.mode is HaMode.ELASTIC:
        return coverage_of_members(nodes, seats_in(view))
    led = {index: leader for index, leader in enumerate(leaders) if leader}
    return coverage_of_shards(nodes, max(1, len(leaders)), led)


def standing_of(
    view: ClusterView,
    config: HaConfig,
    instance_id: InstanceId,
    *,
    acts: bool,
    leader_id: InstanceId,
    coverage: Coverage,
    foreign_leader: InstanceId,
) -> Standing:
    """``acts``: whether this replica's loops run and may act."""
    owned, seats = coverage.owned.get(instance_id, 0) if acts else 0, seats_in(view)
    replicas = sorted(view.values(Kind.REPLICA, ReplicaRecord), key=lambda each: each.instance_id)
    return Standing(
        instance_id,
        config.mode,
        _role(config.mode, seats, instance_id, acts=acts),
        _shard(config, seats),
        leader_id,
        owned,
        sum(bool(node) for node in coverage.unowned),
        sum(bool(node) for node in coverage.doubly_owned),
        tuple(replicas),
        foreign_leader,
    )


def _role(mode: HaMode, seats: Seats, instance_id: InstanceId, *, acts: bool) -> str:
    if mode is HaMode.ELASTIC:
        version = seats.map.version if seats.map else 0
        taken_part = seats.acknowledged.get(instance_id, 0) == version > 0
        return "owner" if acts and taken_part else "joining"
    return "leader" if acts else "standby"


def _shard(config: HaConfig, seats: Seats) -> str:
    match config.mode:
        case HaMode.FAILOVER:
            return ""
        case HaMode.ACTIVE_ACTIVE:
            return f"{config.shard_index}/{config.shard_count}"
        case HaMode.ELASTIC if seats.map is None:
            return "no map yet"
        case HaMode.ELASTIC:
            done = sum(each == seats.map.version for each in seats.acknowledged.values())
            return f"v{seats.map.version}, {done} of {len(seats.map.members)} members"
