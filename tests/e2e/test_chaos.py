"""Half a minute of what `nox -s chaos` does for ten: real processes, faults, every safety rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.chaos.faults import FaultKind
from proofs.chaos.run import Course, run

pytestmark = pytest.mark.slow
SEED = 18


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_chaos_breaks_no_safety_rule(tmp_path: Path) -> None:
    """The replicas, etcd, Redis and the machines are killed, stopped and cut off under work."""
    told: list[str] = []

    report = await run(Course(seed=SEED, seconds=30, every=2.0), tmp_path, told.append)

    assert not report.violations, (told, [each.describe(SEED) for each in report.violations])
    assert report.converged_after is not None
    hit = {str(kind).partition("_")[0] for kind in FaultKind if report.faults[kind]}
    assert {"replica", "etcd"} <= hit
    assert report.leaders > 1
    assert report.commits > 100
    assert report.calls > 50
