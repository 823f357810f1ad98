"""Managed volumes, as operators see them at the command line: kept, given up, and moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from persys_server.dev.picture import ClusterEye
from tests.e2e.processes import agents, ctl, quick_node, server, watching

pytestmark = [
    pytest.mark.slow,
    pytest.mark.simulated("volumes that several nodes reach: no such server is started here"),
]
DRIVERS = frozenset({"local", "nfs"})
MANIFEST = """\
apiVersion: persys.io/v1
kind: Workload
metadata: {name: db}
spec:
  type: container
  image: postgres:16
  resources: {cpu: 10m, memory: 8Mi}
  managedVolumes:
    - {name: data, size: 10Gi, driver: nfs, accessMode: ReadWriteOnce, mountPath: /data,
       retainPolicy: Retain}
"""


async def volumes(address: str, *filters: str) -> list[dict[str, Any]]:
    """What `volume list` shows to programs."""
    listed = await ctl(address, "volume", "list", *filters, "-o", "json")
    assert listed.code == 0, listed.err
    found: list[dict[str, Any]] = json.loads(listed.out)["items"]
    return found


def runs_on(eye: ClusterEye, node_id: str) -> bool:
    """Whether db runs there."""
    return any(
        (view.status, view.assigned_node_id) == ("Running", node_id)
        for view in eye.picture.workloads
    )


@pytest.mark.asyncio
async def test_a_retained_volume_outlives_its_workload_until_it_is_released(tmp_path: Path) -> None:
    """It is attached and held while the workload runs, and cannot be released then; the delete
    leaves it Retained, and the release leaves nothing."""
    manifest = tmp_path / "db.yaml"
    manifest.write_text(MANIFEST)
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1", storage_drivers=DRIVERS)),
    ):
        address = running.address
        applied = await ctl(address, "apply", "-f", str(manifest), "--wait")
        assert applied.code == 0, applied.err

        listed = await ctl(address, "volume", "list", "--workload", "db")
        assert listed.code == 0, listed.err
        line = " ".join(listed.out.splitlines()[1].split())
        assert line.startswith("nfs:data 10 GB ReadWriteOnce Attached db n1 held by workload db on")
        assert "nfs:data" in (await ctl(address, "describe", "workload", "db")).out
        assert await volumes(address, "--node", "n2") == []

        refused = await ctl(address, "volume", "release", "nfs:data")
        assert refused.code == 1
        assert "nfs:data is in use: held by workload db on n1" in refused.err

        deleted = await ctl(address, "delete", "workload", "db", "--wait")
        assert deleted.code == 0, deleted.err
        (kept,) = await volumes(address, "--phase", "Retained")
        assert (kept["disk"]["id"], kept.get("heldReason", "")) == ("nfs:data", "")

        released = await ctl(address, "volume", "release", "nfs:data")
        assert released.code == 0, released.err
        assert "its data is left as it is" in released.out
        assert (await ctl(address, "volume", "list")).out == "no volumes\n"


@pytest.mark.asyncio
async def test_only_a_fence_moves_the_volume_of_a_silent_node(tmp_path: Path) -> None:
    """Silence is no fence: the workload waits for its node past the grace, says why, and moves as
    soon as an operator vouches for it that the node is cut off. A live node is not fenced."""
    manifest = tmp_path / "db.yaml"
    manifest.write_text(MANIFEST)
    async with (
        server(tmp_path, SCHEDULER_NODE_UNAVAILABLE_GRACE="4s") as running,
        agents(running.address, quick_node("n1", storage_drivers=DRIVERS)) as fleet,
        watching(running.address) as eye,
    ):
        address = running.address
        applied = await ctl(address, "apply", "-f", str(manifest), "--wait")
        assert applied.code == 0, applied.err
        await fleet.add(settings=quick_node("n2", storage_drivers=DRIVERS))
        fence = ("node", "fence", "n1", "--reason", "powered off by hand")
        early = await ctl(address, *fence)
        assert early.code == 1
        assert 'node "n1" still beats' in early.err

        await fleet.kill("n1")
        held: list[str] = []

        def is_held() -> bool:
            held[:] = [view.reason.message for view in eye.picture.workloads if view.reason.code]
            return any("not fenced" in text for text in held)

        assert await eye.until(lambda _: is_held(), 40), held
        assert not runs_on(eye, "n2")

        fenced = await ctl(address, *fence)
        assert fenced.code == 0, fenced.err
        assert "1 exclusive volume may move from there (nfs:data)" in fenced.out
        assert "fenced (powered off by hand)" in (await ctl(address, "nodes")).out
        assert await eye.until(lambda _: runs_on(eye, "n2"), 30)
