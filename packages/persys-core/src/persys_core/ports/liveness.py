"""Liveness: whether a node was heard of within its lease. Never a durable write.

Duties: ``touch`` moves no store revision. A node that was never touched since this observer
began (or took over, see ``grace_all``) counts as alive for one full lease, so that a new leader
never inherits a dead line (field report N02).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Protocol

from persys_core.model.ids import NodeId

__all__ = ["Liveness"]


class Liveness(Protocol):
    """Node leases. All instants are the clock's, aware UTC."""

    async def touch(self, node_id: NodeId, lease: timedelta) -> datetime:
        """The node was heard now: alive for ``lease`` from now. Answers when the lease ends."""
        ...

    async def forget(self, node_id: NodeId) -> None:
        """The node left the cluster."""
        ...

    def grace_all(self, node_ids: Iterable[NodeId], lease: timedelta) -> None:
        """Count every given node as alive for one full ``lease`` from now (take-over)."""
        ...

    def is_alive(self, node_id: NodeId) -> bool:
        """Whether the node's lease has not ended."""
        ...

    def confirmed(self, node_id: NodeId) -> timedelta:
        """How much longer the lease lasts, at least, for every observer there is: what this one
        heard and could not tell the others yet does not count. Zero where that is nothing."""
        ...

    def last_seen(self, node_id: NodeId) -> datetime | None:
        """When the node was last heard, as far as this replica knows."""
        ...

    def expired_since(self, node_id: NodeId) -> datetime | None:
        """When the node's lease ended; ``None`` while it is alive."""
        ...
