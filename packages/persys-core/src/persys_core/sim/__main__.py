"""``python -m persys_core.sim``: runs simulated clusters from seeds and says what became of them.

Decided here: what is printed, and the exit code (1 where any run violated a rule).
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from attrs import frozen

from persys_core.model.drift import OrphanPolicy
from persys_core.model.replica import HaMode
from persys_core.sim.report import Report, SimulationError, replay_command
from persys_core.sim.runner import run_scenario
from persys_core.sim.scenario import FaultKind, Scenario

__all__ = ["main", "scenario_of"]


@frozen
class _Outcome:
    """One seed's end, in a form that travels between processes."""

    seed: int
    wall_seconds: float
    report: Report | None
    failure: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit code."""
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        return _run_one(options)
    return _run_many(options)


def scenario_of(arguments: Sequence[str]) -> Scenario:
    """The scenario that a command line with ``--seed`` means."""
    options = _parser().parse_args(arguments)
    return _scenario(options, options.seed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m persys_core.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed and say more about it")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run (200)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--workloads", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60.0, help="of simulated time (60)")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--faults-per-minute", type=float, default=2.0)
    parser.add_argument("--deeds-per-minute", type=float, default=12.0)
    parser.add_argument("--only", default="", help="a comma list of fault kinds; all if empty")
    parser.add_argument(
        "--orphan-policy",
        type=OrphanPolicy,
        choices=tuple(OrphanPolicy),
        help="what becomes of orphans; by default the seed chooses",
    )
    parser.add_argument(
        "--ha",
        type=HaMode,
        choices=tuple(HaMode),
        default=HaMode.FAILOVER,
        help="how the replicas share the work (failover)",
    )
    parser.add_argument("--until", type=float, help="end at this minute, without settling")
    parser.add_argument("--trace", action="append", default=[], help="an id to follow")
    parser.add_argument("--jobs", type=int, default=1, help="processes (1)")
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    return parser


def _scenario(options: argparse.Namespace, seed: int) -> Scenario:
    kinds = frozenset(map(FaultKind, filter(None, options.only.split(","))))
    return Scenario(
        seed,
        nodes=options.nodes,
        workloads=options.workloads,
        duration=timedelta(minutes=options.minutes),
        replicas=options.replicas,
        deeds_per_minute=options.deeds_per_minute,
        faults_per_minute=options.faults_per_minute,
        kinds=kinds or frozenset(FaultKind),
        orphan_policy=options.orphan_policy,
        ha_mode=options.ha,
    )


def _run_one(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    until = None if options.until is None else timedelta(minutes=options.until)
    scenario = _scenario(options, options.seed)
    try:
        report = run_scenario(scenario, until=until, traced=options.trace, sink=_say)
    except SimulationError as error:
        print(error)
        return 1
    wall = time.perf_counter() - began
    print(report.line(wall))
    _print_figures({**report.figures, "simulated_seconds": round(report.seconds)}, wall)
    print(f"replay: {replay_command(scenario)}")
    return 0


def _run_many(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    scenarios = [
        _scenario(options, seed) for seed in range(options.first, options.first + options.seeds)
    ]
    totals: dict[str, int] = {"seeds": 0, "failures": 0}
    for outcome in _outcomes(scenarios, options.jobs):
        _progress(totals["seeds"] + 1, len(scenarios))
        totals["seeds"] += 1
        if outcome.report is None:
            totals["failures"] += 1
            print(outcome.failure, flush=True)
            if not options.keep_going:
                break
            continue
        print(outcome.report.line(outcome.wall_seconds), flush=True)
        for name, value in outcome.report.figures.items():
            totals[name] = totals.get(name, 0) + value
    _print_figures(totals, time.perf_counter() - began)
    return 1 if totals["failures"] else 0


def _outcomes(scenarios: list[Scenario], jobs: int) -> Iterator[_Outcome]:
    if jobs <= 1:
        yield from map(_run, scenarios)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap(_run, scenarios)


def _run(scenario: Scenario) -> _Outcome:
    began = time.perf_counter()
    try:
        report = run_scenario(scenario)
    except SimulationError as error:
        return _Outcome(scenario.seed, time.perf_counter() - began, None, str(error))
    return _Outcome(scenario.seed, time.perf_counter() - began, report)


def _say(line: str) -> None:
    print(line)


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done}/{of}" + ("\n" if done == of else ""))
        sys.stderr.flush()


def _print_figures(figures: dict[str, int], wall_seconds: float) -> None:
    for name, value in figures.items():
        unit = "s" if name.endswith(("seconds", "_after")) else "count"
        print(f"sim_{name} {value} {unit}")
    print(f"sim_wall_seconds {wall_seconds:.1f} s")


if __name__ == "__main__":
    # A store that is away is part of the play; what the scheduler calls a bug is not.
    logging.getLogger("persys").setLevel(logging.ERROR)
    sys.exit(main())
