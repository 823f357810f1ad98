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
async def test_a_node_is_drained_returned_and_marked(tmp_path: Path) -> None:
    """While nothing else takes its work the drain says so and the work stays; with room elsewhere
    it ends with everything running there; after undrain labels and taints steer new work,
    and NoExecute moves what runs."""
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
        for mark in (("taint", "n2", "away"), ("taint", "n3", "away"), ("label", "n1", "rack=r2")):
            marked = await ctl(running.address, "node", *mark)
            assert marked.code == 0, marked.err
        chosen = container("w3")
        chosen.spec.metadata["persys.scheduling.node_selector.rack"] = "r2"
        for request in (chosen, container("w4")):
            await stub.ApplyWorkload(request, timeout=5)
        assert await eye.until(
            lambda _: [running_on(eye).get(name) for name in ("w3", "w4")] == ["n1", "n1"], 20
        )

        assert (await ctl(running.address, "node", "untaint", "n2", "away")).code == 0
        flaky = await ctl(running.address, "node", "taint", "n1", "flaky:NoExecute")
        assert flaky.code == 0, flaky.err
        assert await eye.until(lambda _: running_on(eye).get("w4") == "n2", 20)
        assert running_on(eye)["w3"] == "n1", "no other node has its label, so it stays"
