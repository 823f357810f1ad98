"""The leader of three real replicas goes, in every way: the short form of `proofs.failover`."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs.failover import prove
from proofs.failover_pause import pause_in_the_middle

pytestmark = pytest.mark.slow
TTL = 3
KILLS = 3
SPARE = 5.0
"""What a loaded machine may take longer; the proof itself has the bounds of P9."""


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_another_replica_takes_over(tmp_path: Path) -> None:
    """P9: within the lease and a bit after a kill; at once, not after the lease, after a stop."""
    outcome = await prove(tmp_path, TTL, KILLS)

    assert not outcome.violations
    assert len(outcome.killed) == len(outcome.stopped) == KILLS
    assert max(outcome.killed) < TTL + 2 + SPARE
    assert min(outcome.stopped) < TTL / 3


@pytest.mark.timeout(240)
@pytest.mark.parametrize("cut_off", [False, True], ids=["stopped", "cut-off"])
@pytest.mark.asyncio
async def test_a_leader_that_was_lost_does_no_harm(tmp_path: Path, cut_off: bool) -> None:
    """L01: stopped, or cut off from etcd, past its lease in the middle of a pass, with calls and a
    commit on their way. No write of its lands, it starts no call, what arrives late is refused."""
    paused = await pause_in_the_middle(tmp_path, TTL, cut_off=cut_off)

    assert paused.broken() == []
    assert paused.refused == paused.in_flight
    assert paused.queued > 0
    assert len(paused.held) > 0
    assert cut_off or paused.in_flight > 0
