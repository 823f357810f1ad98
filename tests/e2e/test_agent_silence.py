"""A Docker daemon that hangs for longer than a start may take, below an agent that beats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.agents import identities, shell
from tests.e2e.processes import server
from tests.e2e.real_cluster import cluster_of
from tests.servers.dockerd import run_dockerd

pytestmark = pytest.mark.slow


@pytest.mark.asyncio
async def test_a_daemon_that_hangs_ends_no_work(tmp_path: Path) -> None:
    """Nobody can see what runs there, which is no failure of it: no attempt is spent, nothing is
    moved, and when the daemon answers again nobody stops what ran all the time."""
    with run_dockerd() as daemon:
        async with (
            server(tmp_path, SCHEDULER_AGENT_APPLY_TIMEOUT="5s") as running,
            cluster_of(running, {"n1": daemon}) as cluster,
        ):
            await cluster.apply(shell("w"))
            await cluster.all_run("w", on="n1")
            one = cluster.agents["n1"]
            before, ids = await one.asked(), await identities(daemon)
            daemon.freeze()
            try:
                assert await cluster.eye.until(
                    lambda seen: (
                        [list(each.supported_workload_types) for each in seen.nodes] == [[]]
                    ),
                    40,
                ), cluster.words()
                await cluster.beats_again("n1", beats=8)
                view = cluster.eye.picture.workload("w")
                assert view is not None
                assert (view.status, view.retry_attempts) == ("Running", 0)
            finally:
                daemon.thaw()
            assert await cluster.eye.until(
                lambda seen: all(
                    "container" in each.supported_workload_types for each in seen.nodes
                ),
                40,
            ), cluster.words()
            await cluster.beats_again("n1", beats=3)
            await cluster.all_run("w", on="n1")
            assert await identities(daemon) == ids
            assert await one.asked() == before, "nobody told the agent anything"
