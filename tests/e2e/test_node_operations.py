"""A node is taken out of service and back by an operator at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from persys_server.dev.picture import ClusterEye
from tests.e2e.processes import agents, client, container, ctl, quick_node, server, watching

pytestmark = pytest.mark.slow
WORK = ("w1", "w2")


def running_on(eye: ClusterEye) -> dict[str, str]:
    """Where the work runs; what does not run is not in it."""
    views = eye.picture.workloads
    return {view.workload_id: view.assigned_node_id for view in views if view.status == "Running"}


@pytest.mark.asyncio
async def test_a_node_is_drained_under_its_work_and_returned(tmp_path: Path) -> None:
    """While nothing else takes its work the drain says so and the work stays; with room elsewhere
    it ends with everything running there; after undrain work may come again."""
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1")) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        for name in WORK:
            await stub.ApplyWorkload(container(name), timeout=5)
        assert await eye.until(lambda _: running_on(eye) == dict.fromkeys(WORK, "n1"), 20)

        drain = ("node", "drain", "n1", "--reason", "new disk", "--wait")
        alone = await ctl(running.address, *drain, "--timeout", "2s")
        assert alone.code == 2, alone.out
        assert "no other node takes 2 workloads" in alone.err
        assert [f"  {name}: " in alone.err for name in WORK] == [True, True]
        assert running_on(eye) == dict.fromkeys(WORK, "n1")

        for name in ("n2", "n3"):
            await fleet.add(settings=quick_node(name))
        emptied = await ctl(running.address, *drain, "--timeout", "30s")
        assert emptied.code == 0, emptied.err
        assert "n1 is empty: 2 workloads moved" in emptied.out
        assert await eye.until(
            lambda _: set(running_on(eye)) == set(WORK) and "n1" not in running_on(eye).values(), 20
        )
        status = await ctl(running.address, "node", "status", "n1", "-o", "json")
        shown = json.loads(status.out)
        assert (shown["draining"], shown["workloads"], shown["drain"]) == (True, [], {"moved": 2})
        assert fleet.node("n1").running == 0

        returned = await ctl(running.address, "node", "undrain", "n1")
        assert returned.code == 0, returned.err
        await ctl(running.address, "node", "taint", "n2", "away")
        await ctl(running.address, "node", "taint", "n3", "away")
        await stub.ApplyWorkload(container("w3"), timeout=5)
        assert await eye.until(lambda _: running_on(eye).get("w3") == "n1", 20)
