"""What a replica says of its part in the cluster, and of the others. A plain value."""

from __future__ import annotations

from attrs import frozen

from persys_core.model.replica import HaMode, InstanceId, ReplicaRecord

__all__ = ["Standing"]


@frozen
class Standing:
    """One replica's view of who is there and who acts for what, at one moment.

    ``role``: ``leader``, ``standby``, ``owner`` (elastic) or ``joining``. ``shard`` is empty in
    failover, ``0/3`` in active-active, ``v7, 2 of 3 members`` in elastic. ``leader_id``: who leads
    (failover), who leads this replica's shard (active-active), who coordinates (elastic); empty if
    nobody does. ``replicas``: all that are registered, by instance id. ``foreign_leader``: who
    leads without being registered, a scheduler that is not ours; empty normally.
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
