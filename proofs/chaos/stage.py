"""Everything that takes part, as real processes on free loopback ports, always ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from attrs import define, field, frozen

from persys_core.model.replica import HaMode
from proofs.chaos.front import front
from proofs.chaos.observer import Observer, observing
from proofs.chaos.picture import Picture
from proofs.chaos.replicas import Replica
from proofs.chaos.timelines import Span
from tests.e2e.processes import control, eventually, free_port
from tests.servers.etcd import EtcdCluster, run_cluster
from tests.servers.redis import RedisServer, redis_server

__all__ = ["Machines", "Size", "Stage", "replicated", "staged"]

START_SECONDS = 60.0


@frozen
class Size:
    """How much there is. ``cpu`` in millicores per machine; ``ttl`` and ``grace`` in seconds."""

    replicas: int = 3
    nodes: int = 20
    cpu: int = 4_000
    etcd: int = 3
    ttl: int = 3
    grace: int = 20
    mode: HaMode = HaMode.FAILOVER
    redis: bool = True
    environment: Mapping[str, str] = field(factory=dict)


@define(eq=False)
class Machines:
    """The process of all machines, its control port, and when which one was out of reach."""

    process: subprocess.Popen[bytes]
    control_port: int
    names: tuple[str, ...]
    observer: Observer

    def pause(self) -> None:
        """Stop the process of all of them; nothing on a machine goes on."""
        self.process.send_signal(signal.SIGSTOP)
        for name in self.names:
            self._leaves(name)

    def resume(self) -> None:
        """Let them go on."""
        self.process.send_signal(signal.SIGCONT)
        for name in self.names:
            self._is_back(name)

    async def break_one(self, name: str, verb: str) -> None:
        """``kill`` or ``pause`` a machine."""
        self._leaves(name)
        await control(self.control_port, f"/nodes/{name}/{verb}", post=True)

    async def mend_one(self, name: str) -> None:
        """Undo it."""
        await control(self.control_port, f"/nodes/{name}/revive", post=True)
        self._is_back(name)

    def _leaves(self, name: str) -> None:
        self.observer.timelines.away[name].append(Span(datetime.now(UTC)))

    def _is_back(self, name: str) -> None:
        self.observer.timelines.away[name][-1].end = datetime.now(UTC)


@define(eq=False)
class Stage:
    """What takes part."""

    size: Size
    folder: Path
    etcd: EtcdCluster
    redis: RedisServer | None
    replicas: list[Replica]
    observer: Observer
    door: str

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the replicas' API is."""
        return tuple(replica.address for replica in self.replicas)

    def replica_of(self, instance_id: str) -> Replica | None:
        """The replica that has or had this name."""
        return next((each for each in self.replicas if instance_id in each.instances), None)

    @property
    def leader(self) -> Replica | None:
        """Who leads by etcd's keys, alive or not."""
        return self.replica_of(self.observer.picture.leader)

    async def until_led(self, seconds: float = START_SECONDS) -> Replica:
        """Wait until a replica that is up leads."""
        await eventually(
            lambda: self.leader is not None and self.leader.is_up, "a replica leads", seconds
        )
        leader = self.leader
        assert leader is not None
        return leader

    async def nodes_are_there(self, names: Sequence[str], seconds: float = START_SECONDS) -> None:
        """Wait until these machines are registered and were listed."""
        picture = self.observer.picture

        def listed() -> bool:
            nodes = [picture.node(name) for name in names]
            return all(node is not None and node.listed_under for node in nodes)

        await eventually(listed, "every machine is registered and listed", seconds)


@asynccontextmanager
async def replicated(
    folder: Path, size: Size, *, journal: Path | None = None, keep: bool = False
) -> AsyncIterator[Stage]:
    """etcd, Redis, the replicas, one of which leads, the door and the observer; no machines."""
    async with AsyncExitStack() as stack:
        etcd = stack.enter_context(run_cluster(folder, size.etcd))
        redis = None
        if size.redis:
            redis = await stack.enter_async_context(redis_server(folder / "redis"))
        observer = Observer(Picture(size.mode), keep=keep)
        await stack.enter_async_context(observing(observer, etcd.endpoints, journal))
        replicas = await _replicas(stack, folder, size, etcd, redis)
        door = await stack.enter_async_context(front(replicas, folder))
        stage = Stage(size, folder, etcd, redis, replicas, observer, door)
        await stage.until_led()
        yield stage


@asynccontextmanager
async def staged(
    folder: Path, size: Size, *, seed: int = 1, keep: bool = False
) -> AsyncIterator[tuple[Stage, Machines]]:
    """All of it, serving: the replicas are ready and every machine is registered."""
    journal = folder / "machines.jsonl"
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(
            replicated(folder, size, journal=journal, keep=keep)
        )
        machines = _machines(stack, stage, journal, seed)
        await stage.nodes_are_there(machines.names)
        yield stage, machines


async def _replicas(
    stack: AsyncExitStack, folder: Path, size: Size, etcd: EtcdCluster, redis: RedisServer | None
) -> list[Replica]:
    replicas = []
    for number in range(size.replicas):
        shard = {"SCHEDULER_SHARD_COUNT": str(size.replicas), "SCHEDULER_SHARD_INDEX": str(number)}
        environment = {
            "SCHEDULER_LEADER_TTL": f"{size.ttl}s",
            "SCHEDULER_NODE_UNAVAILABLE_GRACE": f"{size.grace}s",
            "SCHEDULER_HA_MODE": str(size.mode),
            "REDIS_ADDR": f"127.0.0.1:{redis.port}" if redis else "",
            **(shard if size.mode is HaMode.ACTIVE_ACTIVE else {}),
            **size.environment,
        }
        replica = await Replica.create(f"r{number}", folder, etcd.endpoints, **environment)
        stack.push_async_callback(replica.aclose)
        replica.start()
        replicas.append(replica)
    await asyncio.gather(*(replica.ready() for replica in replicas))
    return replicas


def _machines(stack: AsyncExitStack, stage: Stage, journal: Path, seed: int) -> Machines:
    port, size, folder = free_port(), stage.size, stage.folder
    command = [
        *(sys.executable, "-m", "proofs.chaos.machines", "--nodes", str(size.nodes)),
        *("--scheduler", stage.door, "--journal", str(journal)),
        *("--control-port", str(port), "--cpu", str(size.cpu), "--seed", str(seed)),
    ]
    with (folder / "machines.log").open("ab") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=dict(os.environ)
        )
    stack.callback(_ended, process)
    names = tuple(f"n{number}" for number in range(1, size.nodes + 1))
    return Machines(process, port, names, stage.observer)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
