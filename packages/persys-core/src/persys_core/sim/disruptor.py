"""Makes the planned faults happen, each for its time, and mends everything in the end.

Decided here: what a fault does to which part, and that overlapping faults of one part end with the
last of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

from attrs import define, evolve, field

from persys_core.model.ids import NodeId
from persys_core.ports.cluster_store import Snapshot
from persys_core.sim.agent_settings import AgentSettings, Latency
from persys_core.sim.cluster import Replica
from persys_core.sim.faults import LinkFaults, Network
from persys_core.sim.rng import stream
from persys_core.sim.scenario import Fault, FaultKind
from persys_core.sim.stage import Stage
from persys_core.sim.store_faults import FaultyStore, StoreFaults, StoreWeather
from persys_core.sim.tampering import Tamperer

__all__ = ["Disruptor"]

_Effect = Callable[[], Awaitable[None] | None]


@define(eq=False)
class Disruptor:
    """The hand that breaks and mends. ``counts``: the faults that began, by kind."""

    stage: Stage
    tamperer: Tamperer = field(init=False)
    counts: Counter[FaultKind] = field(factory=Counter)
    _held: Counter[tuple[str, str]] = field(factory=Counter)
    _lost: Snapshot | None = None
    _over: bool = False

    def __attrs_post_init__(self) -> None:
        stage = self.stage
        chance = stream(stage.scenario.seed, "tampering")
        self.tamperer = Tamperer(stage.watcher.scene, stage.history, chance)

    async def run(self, faults: list[Fault]) -> None:
        """Let each fault begin and end at its time."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                group.create_task(self._happen(fault))

    async def mend(self) -> None:
        """Everything is whole again, at once."""
        self._over = True
        stage = self.stage
        await self._give_data_back()
        stage.weather.is_away, stage.weather.faults = False, StoreFaults()
        for store in stage.stores:
            store.is_cut_off = False
        stage.cluster.machines.network.faults = LinkFaults()
        for node_id in stage.nodes():
            stage.cluster.machines.network.cut(node_id, to_node=False, from_node=False)
            stage.cluster.machines.revive(node_id)
            stage.cluster.machines.model(node_id).set_clock(timedelta(0))
        for replica in stage.cluster.replicas:
            if replica.is_up:
                replica.membership.resume()
        await stage.fill_up_replicas()

    async def _happen(self, fault: Fault) -> None:
        await self.stage.clock.sleep(fault.at)
        if self._is_over():
            return
        if fault.kind is FaultKind.MASS_LOSS:
            self.counts[fault.kind] += 1
            await self._lose_many(fault)
        elif (begun := self._begin(fault)) is not None:
            self.counts[fault.kind] += 1
            await self._last(fault, *begun)

    async def _lose_many(self, fault: Fault) -> None:
        """From some machine on, a third of them or more; they come back one after the other."""
        nodes = self.stage.nodes()
        first, count = (
            int(fault.pick * len(nodes)),
            round(len(nodes) * (1 + 2 * fault.strength) / 3),
        )
        kind = FaultKind.CUT if int(fault.strength * 10) % 2 else FaultKind.NODE_KILL
        async with asyncio.TaskGroup() as group:
            for number, node in enumerate((nodes[first:] + nodes[:first])[:count]):
                late = timedelta(seconds=number * 10 * fault.pick)
                one = evolve(fault, kind=kind, length=fault.length + late)
                group.create_task(self._last(one, *self._on_node(one, node)))

    async def _last(self, fault: Fault, part: str, begin: _Effect, end: _Effect) -> None:
        """Let a fault of one part begin, and end in its time."""
        name = (str(_part_of(fault.kind)), part)
        self.stage.history.add("fault", (part,), f"{fault.kind} for {fault.length}")
        self._held[name] += 1
        await _done(begin())
        await self.stage.clock.sleep(fault.length)
        self._held[name] -= 1
        if not self._is_over() and not self._held[name]:
            self.stage.history.add("fault", (part,), f"{fault.kind} ends")
            await _done(end())

    def _is_over(self) -> bool:
        """Asked again after every wait."""
        return self._over

    def _begin(self, fault: Fault) -> tuple[str, _Effect, _Effect] | None:
        """The part that the fault is about, how it begins and how it ends."""
        if fault.kind in _NODE_KINDS:
            return self._on_node(fault, self._pick_node(fault))
        if fault.kind in _STORE_KINDS:
            return self._on_store(fault)
        if fault.kind in _DRIFTS:
            node = self._pick_node(fault)
            model = self.stage.cluster.machines.model(node)
            return node, lambda: self.tamperer.tamper(fault.kind, model), _nothing
        if fault.kind is FaultKind.NETWORK:
            network = self.stage.cluster.machines.network
            rough = _rough_links(fault.strength)
            return (
                "network",
                lambda: _set_links(network, rough),
                lambda: _set_links(network, LinkFaults()),
            )
        if fault.kind is FaultKind.NODE_JOINS:
            return "nodes", self.stage.add_node, _nothing
        return self._on_replica(fault)

    # Nodes

    def _pick_node(self, fault: Fault) -> NodeId:
        nodes = self.stage.nodes()
        return nodes[int(fault.pick * len(nodes))]

    def _on_node(self, fault: Fault, node: NodeId) -> tuple[str, _Effect, _Effect]:
        machines = self.stage.cluster.machines
        network = machines.network
        match fault.kind:
            case FaultKind.NODE_KILL | FaultKind.NODE_REBOOT:
                return node, lambda: machines.kill(node), lambda: machines.revive(node)
            case FaultKind.NODE_WIPE:
                return node, lambda: machines.kill(node, wipe=True), lambda: machines.revive(node)
            case FaultKind.AGENT_KILL:
                return node, lambda: machines.kill_agent(node), lambda: machines.revive(node)
            case FaultKind.NODE_RESIZED:
                return node, lambda: self._resize(node, fault), lambda: machines.revive(node)
            case FaultKind.CLOCK_STEP:
                step = _clock_step(fault.strength)
                return (
                    node,
                    lambda: machines.model(node).set_clock(step),
                    lambda: machines.model(node).set_clock(timedelta(0)),
                )
            case FaultKind.NODE_PAUSE:
                return node, lambda: machines.pause(node), lambda: machines.resume(node)
            case _:
                to_node = fault.kind is not FaultKind.CUT_FROM_NODE
                from_node = fault.kind is not FaultKind.CUT_TO_NODE
                return (
                    node,
                    lambda: network.cut(node, to_node=to_node, from_node=from_node),
                    lambda: network.cut(node, to_node=False, from_node=False),
                )

    def _resize(self, node_id: NodeId, fault: Fault) -> None:
        machines = self.stage.cluster.machines
        machines.kill_agent(node_id)
        model = machines.model(node_id)
        model.settings = _other_size(model.settings, fault.strength)

    # The store

    def _on_store(self, fault: Fault) -> tuple[str, _Effect, _Effect]:
        weather = self.stage.weather
        match fault.kind:
            case FaultKind.STORE_AWAY:
                return "store", lambda: _away(weather, True), lambda: _away(weather, False)
            case FaultKind.COMPACTION:
                return "store", self.stage.cluster.backend.compact, _nothing
            case FaultKind.STORE_LOST:
                return "store data", self._take_data_away, self._give_data_back
            case _:
                bad = _bad_weather(fault.kind, fault.strength)
                return (
                    "store weather",
                    lambda: _set_weather(weather, bad),
                    lambda: _set_weather(weather, StoreFaults()),
                )

    def _take_data_away(self) -> None:
        backend = self.stage.cluster.backend
        if self._lost is None and not self.stage.is_starting:
            self._lost = backend.snapshot()
            self.stage.watcher.data_is_whole = False
            backend.restore(Snapshot(0, {}))

    async def _give_data_back(self) -> None:
        if self._lost is not None:
            self.stage.cluster.backend.restore(self._lost)
            self._lost = None
            self.stage.watcher.data_is_whole = True
            await self.stage.fill_up_replicas()

    # Replicas

    def _on_replica(self, fault: Fault) -> tuple[str, _Effect, _Effect] | None:
        up = [replica for replica in self.stage.cluster.replicas if replica.is_up]
        if not up:
            return None
        replica = up[int(fault.pick * len(up))]
        name = replica.scheduler.instance_id
        match fault.kind:
            case FaultKind.REPLICA_CUT:
                store = self.stage.store_of(replica)
                return name, lambda: _cut_off(store, True), lambda: _cut_off(store, False)
            case FaultKind.LEADER_STALL:
                leading = next((each for each in up if each.scheduler.is_leader), replica)
                return (
                    leading.scheduler.instance_id,
                    leading.membership.stall,
                    leading.membership.resume,
                )
            case FaultKind.REPLICA_CRASH:
                return name, lambda: self._crash(replica), self.stage.fill_up_replicas
            case _:
                return name, lambda: self._stop(replica), self.stage.fill_up_replicas

    async def _crash(self, replica: Replica) -> None:
        # While the data is away a new replica would take the store for a new cluster's.
        if replica.is_up and self._lost is None:
            await self.stage.door.crash(replica)

    async def _stop(self, replica: Replica) -> None:
        if replica.is_up and self._lost is None:
            await self.stage.door.stop(replica)


_CUTS = (FaultKind.CUT, FaultKind.CUT_TO_NODE, FaultKind.CUT_FROM_NODE)
_NODE_KINDS = (
    FaultKind.NODE_KILL,
    FaultKind.NODE_REBOOT,
    FaultKind.NODE_WIPE,
    FaultKind.AGENT_KILL,
    FaultKind.NODE_RESIZED,
    FaultKind.NODE_PAUSE,
    FaultKind.CLOCK_STEP,
    *_CUTS,
)
_DRIFTS = (
    FaultKind.DRIFT_VANISHED,
    FaultKind.DRIFT_APPEARED,
    FaultKind.DRIFT_REVISION,
    FaultKind.DRIFT_STATE,
)
_STORE_KINDS = (
    FaultKind.STORE_AWAY,
    FaultKind.STORE_FLAKY,
    FaultKind.STORE_SLOW,
    FaultKind.STORE_LOST,
    FaultKind.WATCH_LAG,
    FaultKind.COMPACTION,
)


def _part_of(kind: FaultKind) -> str:
    """Faults of one part that overlap end together."""
    if kind in _CUTS:
        return "link"
    if kind is FaultKind.CLOCK_STEP:
        return "clock"
    return "machine" if kind in _NODE_KINDS else str(kind)


def _rough_links(strength: float) -> LinkFaults:
    return LinkFaults(
        latency=Latency.of(0.001, 0.01 + strength),
        lost_request=0.15 * strength,
        lost_reply=0.15 * (1 - strength),
        duplicate=0.1 * strength,
        duplicate_after=Latency.of(0, 8),
    )


def _bad_weather(kind: FaultKind, strength: float) -> StoreFaults:
    match kind:
        case FaultKind.STORE_FLAKY:
            return StoreFaults(
                error_before=0.2 * strength,
                error_after=0.2 * (1 - strength),
                read_error=0.1,
                watch_error=0.05 * strength,
            )
        case FaultKind.STORE_SLOW:
            return StoreFaults(slow=0.2 + 0.8 * strength, delay=Latency.of(0.05, 3 * strength + 1))
        case _:
            return StoreFaults(watch_lag=Latency.of(0, 0.2 + 2 * strength))


def _clock_step(strength: float) -> timedelta:
    seconds = (-21_600, -45, -5, 5, 45, 21_600)[int(strength * 6)]
    return timedelta(seconds=seconds)


def _other_size(settings: AgentSettings, strength: float) -> AgentSettings:
    cores = (2, 4, 8, 16)[int(strength * 4)]
    return evolve(settings, cpu_millicores=cores * 1000, memory_mb=cores * 2048)


def _set_links(network: Network, faults: LinkFaults) -> None:
    network.faults = faults


def _set_weather(weather: StoreWeather, faults: StoreFaults) -> None:
    weather.faults = faults


def _away(weather: StoreWeather, is_away: bool) -> None:
    weather.is_away = is_away


def _cut_off(store: FaultyStore, is_cut_off: bool) -> None:
    store.is_cut_off = is_cut_off


def _nothing() -> None:
    """Some faults have no end of their own."""


async def _done(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result
