"""Replicas: who is there, how the cluster divides its nodes among them, and what they agreed on."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_core.model.ids import NodeId

__all__ = [
    "Evictions",
    "HaMode",
    "InstanceId",
    "ReplicaRecord",
    "ShardAcknowledgement",
    "ShardMap",
    "ShardMembers",
]

InstanceId = str
"""A replica's name, unique per life of its process."""


class HaMode(StrEnum):
    """How several replicas share the work."""

    FAILOVER = "failover"
    """One of them acts, for all nodes."""
    ACTIVE_ACTIVE = "active-active"
    """Each acts for the nodes of its shard; the number of shards is fixed."""
    ELASTIC = "elastic"
    """Each acts for a share of the nodes, which changes with the replicas that are there."""


@frozen
class ReplicaRecord:
    """One replica that is there: its record lives as long as its lease.

    ``shard_count`` and ``shard_index`` are of active-active mode. ``address`` is where clients
    reach its gRPC API, ``host:port``; empty where it does not say. ``version`` is the software's.
    """

    instance_id: InstanceId
    registered_at: datetime
    version: str = ""
    ha_mode: HaMode = HaMode.FAILOVER
    shard_count: int = 1
    shard_index: int = 0
    address: str = ""


@frozen
class ShardMembers:
    """Who shared the nodes under one version of the map; sorted."""

    version: int
    members: tuple[InstanceId, ...]


@frozen
class ShardMap:
    """Who shares the nodes in elastic mode. Which node is whose follows from the members' names.

    ``earlier``: the versions before it that a replica may still act by, oldest first.
    """

    version: int
    members: tuple[InstanceId, ...]
    earlier: tuple[ShardMembers, ...] = ()

    @property
    def current(self) -> ShardMembers:
        """This version without its past."""
        return ShardMembers(self.version, self.members)


@frozen
class ShardAcknowledgement:
    """A replica's word that it acts for no node any more that it lost with a version of the map.

    It lives as long as the replica's lease.
    """

    instance_id: InstanceId
    version: int


@frozen
class Evictions:
    """The lost nodes whose work may be moved now, where several replicas move work; sorted."""

    may_move: tuple[NodeId, ...] = ()
