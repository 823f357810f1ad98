"""The embedded store loses nothing that it acknowledged, whenever the process is killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment
from persys_core.ports.cluster_store import Key, Snapshot

ROOT = Path(__file__).parents[3]


def acknowledged_until_killed(path: Path, name: str, after: int) -> Iterator[tuple[str, int]]:
    """What a burst of writes was told, killed without warning after so many commits."""
    command = [sys.executable, "-m", "tests.unit.sqlite.burst", str(path), name]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = list(islice(process.stdout, after))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    for line in lines:
        if line.endswith("\n"):
            workload_id, revision = line.split()
            yield workload_id, int(revision)


def assert_ledger_adds_up(snapshot: Snapshot) -> None:
    """Every allocation record is the sum of the assignments to its node."""
    records = [found.value for found in snapshot.records.values()]
    assignments = [record for record in records if isinstance(record, Assignment)]
    for ledger in records:
        if isinstance(ledger, Allocation):
            own = [each for each in assignments if each.node_id == ledger.node_id]
            assert ledger.workload_count == len(own)
            assert ledger.charged == Resources.total(each.charged for each in own)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_kill_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """After SIGKILL in a burst every acknowledged commit is there, whole, at its revision."""
    path = tmp_path / "store.db"
    acknowledged: dict[str, int] = {}
    for life, after in enumerate((1, 40, 333)):
        acknowledged |= dict(acknowledged_until_killed(path, f"life{life}", after))
        store = await SqliteClusterStore.open(path)
        try:
            snapshot = await store.snapshot()
        finally:
            await store.aclose()
        for workload_id, revision in acknowledged.items():
            assert snapshot.records[Key.assignment(workload_id)].revision == revision
        assert_ledger_adds_up(snapshot)
        assert snapshot.revision >= max(acknowledged.values())
    assert len(acknowledged) >= 374
