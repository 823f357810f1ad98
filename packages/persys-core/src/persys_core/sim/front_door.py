"""The way into the replicas: which one answers a call, and what becomes of it when that one dies.

Decided here: a load balancer's choice, and that a call to a replica that dies ends without an
answer, whether or not it took effect.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from persys_core.control.scheduler import Scheduler
from persys_core.model.errors import PersysError
from persys_core.sim.cluster import Replica, SimulatedCluster

__all__ = ["FrontDoor", "ReplicaGoneError"]

T = TypeVar("T")


class ReplicaGoneError(PersysError):
    """The replica died, or none was up: whether the call took effect cannot be told."""


class FrontDoor:
    """Calls replicas on behalf of users and agents."""

    def __init__(self, cluster: SimulatedCluster, rng: random.Random) -> None:
        self._cluster = cluster
        self._rng = rng
        self._calls: dict[Replica, set[asyncio.Task[object]]] = {}

    async def call(self, work: Callable[[Scheduler], Awaitable[T]]) -> T:
        """Have one of the replicas that are up do ``work``.

        Raises ReplicaGoneError, and whatever the work raises.
        """
        replica = self._choose()
        calls = self._calls.setdefault(replica, set())

        async def answer() -> T:
            return await work(replica.scheduler)

        task = asyncio.ensure_future(answer())
        calls.add(task)
        task.add_done_callback(calls.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if not task.done():
                task.cancel()
            if replica.is_up:
                raise
            raise ReplicaGoneError(f"{replica.scheduler.instance_id} died") from None

    async def crash(self, replica: Replica) -> None:
        """The replica dies: its calls end without an answer, its lease runs out."""
        replica.is_up = False
        for task in tuple(self._calls.get(replica, ())):
            task.cancel()
        await self._cluster.crash(replica)

    async def stop(self, replica: Replica) -> None:
        """The replica ends cleanly; calls that are open end without an answer."""
        replica.is_up = False
        for task in tuple(self._calls.get(replica, ())):
            task.cancel()
        await self._cluster.stop_replica(replica)

    def _choose(self) -> Replica:
        up = [replica for replica in self._cluster.replicas if replica.is_up]
        chance = self._rng.random()
        if not up:
            raise ReplicaGoneError("no replica is up")
        return up[int(chance * len(up))]
