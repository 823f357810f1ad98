"""The rules about nodes are seen to fail, too, when what they guard is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control import node_monitor
from persys_core.control.events import EventPublisher
from persys_core.model.event import EventType
from persys_core.nodes import eviction
from persys_core.nodes.eviction import EvictionPlan, EvictionPolicy, EvictionState, plan_evictions
from persys_core.sim.agent import MachineState
from persys_core.sim.invariants import Rule
from persys_core.sim.stage import Stage
from tests.simulation.spoilers import CALM, calm_run, rogue, violated

MANY_SILENT = evolve(CALM, nodes=10, workloads=40, duration=timedelta(minutes=6))


def silence(count: int) -> Callable[[Stage], None]:
    """So many machines lose power at once, those with the most work."""

    def kill(stage: Stage) -> None:
        mirror = stage.watcher.mirror
        busiest = sorted(stage.nodes(), key=lambda node: -len(list(mirror.bound_to(node))))
        for node_id in busiest[:count]:
            stage.cluster.machines.kill(node_id)

    return rogue(timedelta(minutes=1), kill)


def test_many_silent_nodes_alone_violate_nothing() -> None:
    """What the evictions below are put into is a run that passes."""
    for count in (4, 7):
        calm_run(silence(count), MANY_SILENT)


def test_evictions_during_a_mass_loss_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: a leader that takes most of its cluster for lost is found out."""
    monkeypatch.setattr(eviction, "is_mass_loss", lambda *_: False)
    assert violated(lambda: calm_run(silence(7), MANY_SILENT)) is Rule.EVICTIONS


def test_evictions_right_after_a_mass_loss_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: what was cut off together comes back one by one, this one perhaps next."""

    def forgetful(state: EvictionState, **facts: object) -> EvictionPlan:
        return plan_evictions(evolve(state, resumes_at=None), **facts)  # type: ignore[arg-type]

    def some_return(stage: Stage) -> None:
        silence(7)(stage)
        rogue(timedelta(minutes=4.5), back)(stage)

    def back(stage: Stage) -> None:
        machines = stage.cluster.machines
        off = [node for node in stage.nodes() if machines.model(node).state is MachineState.OFF]
        for node_id in off[:4]:
            machines.revive(node_id)

    calm_run(some_return, MANY_SILENT)
    monkeypatch.setattr(node_monitor, "plan_evictions", forgetful)
    assert violated(lambda: calm_run(some_return, MANY_SILENT)) is Rule.EVICTIONS


def test_evictions_all_at_once_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: lost nodes are left one after the other."""

    def at_once(*args: object, policy: EvictionPolicy, **more: object) -> EvictionPlan:
        hasty = evolve(policy, interval=timedelta(0))
        return plan_evictions(*args, policy=hasty, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(node_monitor, "plan_evictions", at_once)
    larger = evolve(MANY_SILENT, nodes=20, workloads=60)
    assert violated(lambda: calm_run(silence(9), larger)) is Rule.EVICTIONS


def test_a_mass_loss_that_nobody_tells_of_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 11: the event is how people hear that nothing moves."""
    publish = EventPublisher.publish

    def silent(self: EventPublisher, kind: EventType, **about: str) -> None:
        if kind is not EventType.MASS_NODE_LOSS:
            publish(self, kind, **about)  # type: ignore[arg-type]

    monkeypatch.setattr(EventPublisher, "publish", silent)
    assert violated(lambda: calm_run(silence(7), MANY_SILENT)) is Rule.EVICTIONS
