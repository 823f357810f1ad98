"""Liveness in the memory of one process: node leases that end by the monotonic clock.

Decided here: when a lease has ended. What follows from it is decided by ``nodes.liveness``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from attrs import frozen

from persys_core.model.ids import NodeId
from persys_core.ports.clock import Clock

__all__ = ["MemoryLiveness"]

DEFAULT_LEASE = timedelta(seconds=30)


@frozen
class _Lease:
    """Until when a node counts as alive: on the monotonic clock, and as shown to people."""

    deadline: float
    ends_at: datetime


class MemoryLiveness:
    """Node leases. A node that was never heard of is alive for ``lease`` from construction."""

    def __init__(self, clock: Clock, lease: timedelta = DEFAULT_LEASE) -> None:
        self._clock = clock
        self._leases: dict[NodeId, _Lease] = {}
        self._seen: dict[NodeId, datetime] = {}
        self._first = self._lease_from_now(lease)

    async def touch(self, node_id: NodeId, lease: timedelta) -> datetime:
        """The node was heard now: alive for ``lease`` from now. Answers when that ends."""
        self._seen[node_id] = self._clock.now()
        self._leases[node_id] = granted = self._lease_from_now(lease)
        return granted.ends_at

    async def forget(self, node_id: NodeId) -> None:
        """The node left the cluster; a later one of that name starts anew."""
        self._leases.pop(node_id, None)
        self._seen.pop(node_id, None)

    def grace_all(self, node_ids: Iterable[NodeId], lease: timedelta) -> None:
        """Count every given node as alive for one full ``lease`` from now, or longer."""
        granted = self._lease_from_now(lease)
        for node_id in node_ids:
            self._leases[node_id] = max(self._of(node_id), granted, key=_deadline)

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's lease has not ended."""
        return self._clock.monotonic() < self._of(node_id).deadline

    def confirmed(self, node_id: NodeId) -> timedelta:
        """How much longer the lease lasts; there is no other observer."""
        left = self._of(node_id).deadline - self._clock.monotonic()
        return timedelta(seconds=max(0.0, left))

    def last_seen(self, node_id: NodeId) -> datetime | None:
        """When the node was last heard here."""
        return self._seen.get(node_id)

    def expired_since(self, node_id: NodeId) -> datetime | None:
        """When the node's lease ended; ``None`` while it is alive."""
        return None if self.is_alive(node_id) else self._of(node_id).ends_at

    def _of(self, node_id: NodeId) -> _Lease:
        return self._leases.get(node_id, self._first)

    def _lease_from_now(self, lease: timedelta) -> _Lease:
        deadline = self._clock.monotonic() + lease.total_seconds()
        return _Lease(deadline, self._clock.now() + lease)


def _deadline(lease: _Lease) -> float:
    return lease.deadline
