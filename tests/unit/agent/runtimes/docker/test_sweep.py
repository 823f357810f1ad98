"""What a cluster made is removed, and nothing else; what cannot be is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from attrs import define, field

from persys_agent.runtimes.docker.documents import Document
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.docker.sweep import LeftoversError, power_off, sweep
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time

_PROJECT = "com.docker.compose.project"


@define
class Thing:
    """Something that a daemon has; ``refusals`` are answers to attempts to remove it."""

    name: str
    labels: Mapping[str, str]
    refusals: list[int] = field(factory=list)


class FakeEngine(Engine):
    """A daemon in memory."""

    def __init__(self, *containers: Thing) -> None:
        super().__init__("unix:///nonexistent")
        self.made = list(containers)
        self.nets: list[Thing] = []
        self.vols: list[Thing] = []
        self.stopped: list[str] = []

    async def containers(
        self, labels: Mapping[str, str], *, running: bool = False
    ) -> Sequence[Document]:
        return [{"Id": each.name, "Labels": each.labels} for each in _found(self.made, labels)]

    async def stop(self, container_id: str, seconds: int) -> None:
        assert seconds == 0
        self.stopped.append(container_id)

    async def delete(self, container_id: str, *, with_volumes: bool = False) -> None:
        assert with_volumes
        _remove(self.made, container_id)

    async def networks(self, labels: Mapping[str, str]) -> Sequence[str]:
        return [each.name for each in _found(self.nets, labels)]

    async def delete_network(self, name: str) -> None:
        _remove(self.nets, name)

    async def volumes(self, labels: Mapping[str, str]) -> Sequence[str]:
        return [each.name for each in _found(self.vols, labels)]

    async def delete_volume(self, name: str) -> None:
        _remove(self.vols, name)


def _found(things: list[Thing], labels: Mapping[str, str]) -> list[Thing]:
    return [
        each
        for each in things
        if all(
            name in each.labels and value in ("", each.labels[name])
            for name, value in labels.items()
        )
    ]


def _remove(things: list[Thing], name: str) -> None:
    thing = next(each for each in things if each.name == name)
    if thing.refusals:
        raise EngineError(thing.refusals.pop(), "no")
    things.remove(thing)


def container(name: str, cluster: str, **more: str) -> Thing:
    return Thing(name, {"persys.managed": "true", "persys.cluster_id": cluster, **more})


@virtual_time()
async def test_all_of_a_cluster_goes_and_nothing_else(clock: VirtualClock) -> None:
    """Containers by the cluster's label, networks and volumes by their projects or the label."""
    app = container("app", "ours", **{_PROJECT: "shop-1"})
    stranger = Thing("web", {"persys.cluster_id": "ours"})
    engine = FakeEngine(container("a", "ours"), app, container("b", "theirs"), stranger)
    engine.nets = [Thing("n", {_PROJECT: "shop-1"}), Thing("m", {_PROJECT: "shop-2"})]
    engine.vols = [
        Thing("v", {_PROJECT: "shop-1"}),
        Thing("w", {"persys.cluster_id": "ours"}),
        Thing("x", {"persys.cluster_id": "theirs"}),
        Thing("y", {_PROJECT: "half-made"}),
    ]
    assert await sweep(engine, lambda cluster: cluster == "ours", ["half-made"]) == 2
    assert [each.name for each in engine.made] == ["b", "web"]
    assert [each.name for each in engine.nets] == ["m"]
    assert [each.name for each in engine.vols] == ["x"]


@virtual_time()
async def test_what_is_busy_is_tried_again(clock: VirtualClock) -> None:
    """A removal that is under way is waited for; what is gone meanwhile is gone."""
    busy, gone = container("a", "ours"), container("b", "ours")
    busy.refusals, gone.refusals = [409, 409], [404]
    engine = FakeEngine(busy, gone)
    assert await sweep(engine, lambda _: True) == 2
    assert engine.made == []


@virtual_time()
async def test_what_cannot_be_removed_is_named(clock: VirtualClock) -> None:
    """With the label to look for, after some tries; a refusal of another kind at once."""
    stuck = container("a", "ours")
    stuck.refusals = [409] * 100
    with pytest.raises(LeftoversError, match=r"persys\.cluster_id = ours"):
        await sweep(FakeEngine(stuck), lambda _: True)
    stuck.refusals = [500]
    with pytest.raises(LeftoversError, match="Docker refuses"):
        await sweep(FakeEngine(stuck), lambda _: True)


@virtual_time()
async def test_power_goes_off_for_one_node(clock: VirtualClock) -> None:
    """Its containers stop without a grace, and stay."""
    engine = FakeEngine(
        container("a", "ours", **{"persys.node_id": "n1"}),
        container("b", "ours", **{"persys.node_id": "n2"}),
        container("c", "theirs", **{"persys.node_id": "n1"}),
    )
    await power_off(engine, "ours", "n1")
    assert engine.stopped == ["a"]
    assert len(engine.made) == 3
