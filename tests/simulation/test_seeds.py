"""Clusters under faults hold every safety rule and settle: the short form of `nox -s sim`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from persys_core.model.replica import HaMode
from persys_core.sim.runner import run_scenario
from persys_core.sim.scenario import Scenario


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1001, 1002, 1003, 1004, 1005])
def test_twenty_nodes_hold_every_rule_under_faults(seed: int) -> None:
    """Twelve minutes with every kind of fault: no rule is violated, and it settles afterwards."""
    report = run_scenario(Scenario(seed, duration=timedelta(minutes=12)))
    assert report.figures["faults"] >= 15
    assert report.figures["placements"] >= 50


@pytest.mark.slow
@pytest.mark.parametrize("mode", [HaMode.ELASTIC, HaMode.ACTIVE_ACTIVE])
def test_replicas_that_share_the_nodes_hold_every_rule(mode: HaMode) -> None:
    """Three of them act at once, with every kind of fault."""
    run_scenario(
        Scenario(
            1020,
            nodes=12,
            workloads=50,
            duration=timedelta(minutes=12),
            replicas=3,
            ha_mode=mode,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 3])
def test_other_numbers_of_replicas_hold_every_rule(replicas: int) -> None:
    """A lone replica and three of them live by the same rules."""
    run_scenario(
        Scenario(
            1010 + replicas,
            nodes=6,
            workloads=30,
            duration=timedelta(minutes=20),
            replicas=replicas,
            faults_per_minute=3,
        )
    )
