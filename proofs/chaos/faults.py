"""The faults of a run, drawn from its seed, and how each is done and undone.

Decided here: what may be away at once. One member of etcd, one more replica than leaves one whole,
and whatever else is drawn; a fault that is not permitted at its time is left out and counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from attrs import define, field, frozen

from persys_core.sim.rng import stream
from proofs.chaos.replicas import Replica
from proofs.chaos.stage import Machines, Size, Stage

__all__ = ["Fault", "FaultKind", "Faults", "plan"]


T = TypeVar("T")


class FaultKind(StrEnum):
    """What can happen."""

    REPLICA_KILL = "replica_kill"
    REPLICA_RESTART = "replica_restart"
    REPLICA_PAUSE_SHORT = "replica_pause_short"
    REPLICA_PAUSE_LONG = "replica_pause_long"
    REPLICA_PARTITION = "replica_partition"
    ETCD_KILL = "etcd_kill"
    ETCD_PAUSE = "etcd_pause"
    ETCD_RESTART = "etcd_restart"
    REDIS_KILL = "redis_kill"
    AGENTS_PAUSE = "agents_pause"
    NODE_PAUSE = "node_pause"
    NODE_KILL = "node_kill"


_K = FaultKind
_WEIGHTS: Mapping[FaultKind, int] = {
    _K.REPLICA_KILL: 4, _K.REPLICA_RESTART: 3, _K.REPLICA_PAUSE_SHORT: 2, _K.REPLICA_PAUSE_LONG: 4,
    _K.REPLICA_PARTITION: 3, _K.ETCD_KILL: 2, _K.ETCD_PAUSE: 2, _K.ETCD_RESTART: 1,
    _K.REDIS_KILL: 1, _K.AGENTS_PAUSE: 1, _K.NODE_PAUSE: 2, _K.NODE_KILL: 1,
}  # fmt: skip
LEADER_SHARE = 0.5


@frozen
class Fault:
    """``at``: seconds from the beginning. ``length``: seconds until it is undone. ``share``: which
    one of those it may happen to, from 0 to 1. ``leader``: to whoever leads, where that can be."""

    at: float
    kind: FaultKind
    length: float
    share: float
    leader: bool


def plan(seed: int, seconds: float, size: Size, every: float = 3.0) -> Iterator[Fault]:
    """The faults of a run that long, one in ``every`` seconds on average."""
    rng = stream(seed, "faults")
    kinds = [kind for kind in _WEIGHTS if size.redis or kind is not FaultKind.REDIS_KILL]
    weights = [_WEIGHTS[kind] for kind in kinds]
    at = 1.0
    while at < seconds:
        kind = rng.choices(kinds, weights)[0]
        low, high = _lengths(kind, size)
        length, share = rng.uniform(low, high), rng.random()
        yield Fault(at, kind, length, share, rng.random() < LEADER_SHARE)
        at += rng.uniform(every * 0.5, every * 1.5)


def _lengths(kind: FaultKind, size: Size) -> tuple[float, float]:
    ttl, grace = float(size.ttl), float(size.grace)
    return {
        FaultKind.REPLICA_PAUSE_SHORT: (0.2, ttl * 0.6),
        FaultKind.REPLICA_PAUSE_LONG: (ttl * 1.2, ttl * 2.5),
        FaultKind.REPLICA_PARTITION: (ttl * 0.5, ttl * 2.5),
        FaultKind.REPLICA_RESTART: (0.0, 0.0),
        FaultKind.ETCD_RESTART: (0.0, 0.0),
        FaultKind.AGENTS_PAUSE: (0.5, min(5.0, grace * 0.3)),
        FaultKind.NODE_PAUSE: (1.0, grace * 1.6),
        FaultKind.NODE_KILL: (1.0, grace * 1.6),
    }.get(kind, (0.5, 5.0))


@define(eq=False)
class Faults:
    """Carries a plan out on a stage."""

    stage: Stage
    machines: Machines
    told: Callable[[str], None]
    done: Counter[FaultKind] = field(factory=Counter)
    left_out: Counter[FaultKind] = field(factory=Counter)
    on_leader: int = 0
    _hit: set[str] = field(factory=set)
    """What is away: names of replicas and machines, ``etcd``, ``redis``, ``agents``."""

    async def run(self, faults: list[Fault]) -> None:
        """All of them at their times; over once each is undone."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
                group.create_task(self._one(fault))

    async def _one(self, fault: Fault) -> None:
        name, body = self._chosen(fault)
        if name is None:
            self.left_out[fault.kind] += 1
            return
        self._hit.add(name)
        self.done[fault.kind] += 1
        self.told(f"{fault.kind} {name} {fault.length:.1f} s")
        try:
            await body()
        finally:
            self._hit.discard(name)

    def _chosen(self, fault: Fault) -> tuple[str | None, Callable[[], Awaitable[None]]]:
        """Whom it happens to, and how; ``None`` where it may not happen now."""
        if fault.kind.startswith("replica"):
            replica = self._replica(fault)
            if replica is None:
                return None, _nothing
            self.on_leader += replica is self.stage.leader
            return replica.name, lambda: self._on_replica(fault, replica)
        if fault.kind.startswith("node"):
            name = _pick(self.machines.names, fault.share)
            free = name not in self._hit and "agents" not in self._hit
            return name if free else None, lambda: self._on_node(fault, name)
        target, body = {
            "etcd": ("etcd", self._on_etcd),
            "redis": ("redis", self._on_redis),
            "agents": ("agents", self._on_agents),
        }[fault.kind.partition("_")[0]]
        some_node = target == "agents" and self._hit & set(self.machines.names)
        free = target not in self._hit and not some_node
        return target if free else None, lambda: body(fault)

    def _replica(self, fault: Fault) -> Replica | None:
        """One that is whole; the last whole one is left alone."""
        whole = [each for each in self.stage.replicas if each.name not in self._hit]
        if len(whole) < 2:
            return None
        leader = self.stage.leader
        if fault.leader and leader is not None and leader in whole:
            return leader
        return _pick(whole, fault.share)

    async def _on_replica(self, fault: Fault, replica: Replica) -> None:
        match fault.kind:
            case FaultKind.REPLICA_KILL:
                replica.kill()
                await asyncio.sleep(fault.length)
                replica.start()
            case FaultKind.REPLICA_RESTART:
                await replica.stop()
                replica.start()
            case FaultKind.REPLICA_PARTITION:
                replica.part()
                await asyncio.sleep(fault.length)
                replica.join()
            case _:
                replica.pause()
                await asyncio.sleep(fault.length)
                replica.resume()
        await replica.ready(60.0)

    async def _on_etcd(self, fault: Fault) -> None:
        member = _pick(self.stage.etcd.members, fault.share)
        if fault.kind is FaultKind.ETCD_PAUSE:
            member.pause()
            await asyncio.sleep(fault.length)
            member.resume()
        else:
            await asyncio.to_thread(member.kill)
            await asyncio.sleep(fault.length)
            member.start()
        await asyncio.to_thread(member.wait_ready)

    async def _on_redis(self, fault: Fault) -> None:
        redis = self.stage.redis
        assert redis is not None
        await redis.kill()
        await asyncio.sleep(fault.length)
        await redis.start()

    async def _on_agents(self, fault: Fault) -> None:
        self.machines.pause()
        await asyncio.sleep(fault.length)
        self.machines.resume()

    async def _on_node(self, fault: Fault, name: str) -> None:
        verb = "pause" if fault.kind is FaultKind.NODE_PAUSE else "kill"
        await self.machines.break_one(name, verb)
        await asyncio.sleep(fault.length)
        await self.machines.mend_one(name)


def _pick(choices: Sequence[T], share: float) -> T:
    return choices[int(share * len(choices)) % len(choices)]


async def _nothing() -> None:
    return None
