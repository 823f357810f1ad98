"""A seed is the whole story: equal seeds replay, and what is printed leads back to the run."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest

from persys_core.model.drift import OrphanPolicy
from persys_core.sim.__main__ import main, scenario_of
from persys_core.sim.invariants import Finding, Rule
from persys_core.sim.report import SimulationError, replay_command
from persys_core.sim.runner import run_scenario
from persys_core.sim.scenario import FaultKind, Scenario, plan_faults
from persys_core.sim.stage import Stage
from tests.simulation.spoilers import CALM, calm_run, rogue

SMALL = Scenario(
    3, nodes=6, workloads=25, duration=timedelta(minutes=6), faults_per_minute=3, replicas=3
)
SMALL_WORDS = "--seed 3 --nodes 6 --workloads 25 --minutes 6 --faults-per-minute 3 --replicas 3"


def fingerprint_under(hash_seed: str) -> str:
    """The fingerprint of the small run in a process of its own."""
    code = (
        "from tests.simulation.test_replay import SMALL\n"
        "from persys_core.sim.runner import run_scenario\n"
        "print(run_scenario(SMALL).fingerprint)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Neither the order of sets nor addresses in memory get into a run."""
    assert fingerprint_under("1") == fingerprint_under("2") == run_scenario(SMALL).fingerprint


def test_another_seed_is_another_run() -> None:
    """The seed decides what happens."""
    runs = {
        run_scenario(
            Scenario(seed, nodes=3, workloads=6, duration=timedelta(minutes=2), faults_per_minute=0)
        ).fingerprint
        for seed in (1, 2)
    }
    assert len(runs) == 2


def test_faults_are_planned_from_the_seed_alone() -> None:
    """The plan is pure: equal scenarios, equal faults, all within the duration."""
    faults = plan_faults(SMALL)
    assert faults == plan_faults(SMALL)
    assert len(faults) == 18
    assert all(timedelta(0) <= fault.at < SMALL.duration for fault in faults)
    only = plan_faults(Scenario(3, kinds=frozenset({FaultKind.CUT})))
    assert {fault.kind for fault in only} == {FaultKind.CUT}


def test_the_replay_command_means_the_same_run() -> None:
    """What a failure prints is understood by the command line as the very scenario."""
    only = Scenario(8, kinds=frozenset({FaultKind.CUT, FaultKind.COMPACTION}), deeds_per_minute=3)
    adopting = Scenario(9, orphan_policy=OrphanPolicy.ADOPT)
    for scenario in (SMALL, CALM, only, adopting, Scenario(0)):
        words = replay_command(scenario).split()[3:]
        assert scenario_of(words) == scenario


def test_a_violation_tells_everything() -> None:
    """Seed, time, rule, subjects, the last lines about them, and how to replay."""

    def lose(stage: Stage) -> None:
        stage.watcher.report([Finding(Rule.NOTHING_LOST, "it was lost", ("w3",))])

    with pytest.raises(SimulationError) as caught:
        calm_run(rogue(timedelta(seconds=90), lose))
    text = str(caught.value)
    assert "seed 11 at 0:01:30.000: rule 6-nothing-lost about w3" in text
    assert "w3 applies" in text
    assert text.splitlines()[-1] == (
        "replay: python -m persys_core.sim --seed 11 --nodes 4 --workloads 12 --minutes 4"
        " --faults-per-minute 0 --trace w3"
    )


def test_a_seed_can_be_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """`--trace` prints the lines about an id as they happen, `--until` ends the run there."""
    assert main([*SMALL_WORDS.split(), "--until", "2", "--trace", "w1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    about = [line for line in lines if " w1 " in line]
    assert "people" in about[0]
    assert any("machine" in line for line in about)
    assert all(line.startswith("0:0") for line in about)


def test_many_seeds_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per seed, then `name value unit` for machines."""
    words = "--seeds 2 --first 40 --nodes 3 --workloads 5 --minutes 1 --faults-per-minute 0"
    assert main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [["seed", "40", "ok"], ["seed", "41", "ok"]]
    figures = dict(line.split()[:2] for line in lines[2:])
    assert figures["sim_seeds"] == "2"
    assert figures["sim_failures"] == "0"
    assert all(len(line.split()) == 3 for line in lines[2:])
