"""Replicas that place at once never charge a node above its capacity: a short form of the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.oversubscription import Filling, fill

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_eight_clients_fill_a_cluster_exactly(tmp_path: Path) -> None:
    """200 workloads onto 200 CPUs through three replicas: at no revision is a node above its
    capacity, and all are placed and run."""
    filling = Filling(nodes=20, cpus=10, bound=120)

    filled = await fill(tmp_path, filling)

    assert not filled.broken
    assert filled.placed == filling.workloads == 200
    assert filled.conflicts > 0, "the replicas did not meet"
    assert filled.revisions > filling.workloads
