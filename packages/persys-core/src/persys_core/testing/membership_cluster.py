"""The replicas that the contract of Membership is tried on, and how time passes for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.membership import Membership

__all__ = ["PATIENCE_SECONDS", "STEPS_PER_TTL", "MembershipCluster", "closing"]

PATIENCE_SECONDS = 60.0
STEPS_PER_TTL = 20


class MembershipCluster(ABC):
    """Replicas that elect among each other; one cluster for one test."""

    ttl: timedelta
    """The lease that the replicas campaign with."""

    @property
    @abstractmethod
    def store(self) -> ClusterStore:
        """The store that epochs are creation revisions of."""

    @abstractmethod
    async def join(self, instance_id: str) -> Membership:
        """A further replica."""

    @abstractmethod
    async def stall(self, membership: Membership) -> None:
        """Stop the replica as a paused process is stopped: it renews and hands over nothing."""

    @abstractmethod
    async def resume(self, membership: Membership) -> None:
        """Let a stalled replica go on."""

    @abstractmethod
    async def advance(self, duration: timedelta) -> None:
        """Let time pass."""

    @abstractmethod
    async def close(self) -> None:
        """End every replica."""


@asynccontextmanager
async def closing(cluster: MembershipCluster) -> AsyncIterator[None]:
    """End the cluster with the block."""
    try:
        yield
    finally:
        await cluster.close()
