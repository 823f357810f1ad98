"""The database is removed while the server is down, and an operator brings the cluster back."""

from __future__ import annotations

import json
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from persys_core.sim.agent_journal import Happening
from persys_proto.control.v1 import control_pb2_grpc
from tests.e2e.processes import (
    Server,
    agents,
    client,
    container,
    ctl,
    quick_node,
    server,
    watching,
)
from tests.fleets.fleet import Fleet

pytestmark = pytest.mark.slow
WORK = tuple(f"w{number}" for number in range(5))
NODES = ("n1", "n2", "n3")
CHANGES = (Happening.APPLY, Happening.DELETE, Happening.STOPPED, Happening.STARTED)


def changes(fleet: Fleet) -> int:
    """How often agents were asked to change something, or did."""
    return sum(
        entry.what in CHANGES for node in NODES for entry in fleet.model(node).journal.entries
    )


async def lose_the_store(running: Server) -> None:
    """End the server as it should end, and remove its database."""
    running.signal(signal.SIGTERM)
    assert await running.ended() == 0
    removed = [each for each in running.folder.glob("state.db*") if "lock" not in each.name]
    assert removed, "the database is there"
    for path in removed:
        path.unlink()


async def mode(address: str) -> str:
    """The operating mode, as an operator sees it."""
    shown = json.loads((await ctl(address, "summary", "-o", "json")).out)
    found: str = shown["mode"]
    return found


async def all_known(address: str) -> dict[str, str]:
    """Wait until every node has presented itself; where an import would find each workload."""
    error = ""
    for _ in range(40):
        dry = await ctl(address, "import", "--dry-run", "-o", "json")
        if dry.code == 0 and (shown := json.loads(dry.out)).get("nodesListed") == len(NODES):
            return {each["workloadId"]: each["nodeId"] for each in shown["workloads"]}
        error = dry.err
    raise AssertionError(f"not all nodes presented themselves: {error}")


async def refused(stub: control_pb2_grpc.AgentControlAsyncStub) -> str:
    """Why nothing may be changed now."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ApplyWorkload(container("new"), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


def deleting_server(folder: Path, port: int = 0) -> AbstractAsyncContextManager[Server]:
    """A server that deletes orphans as soon as it may."""
    return server(
        folder,
        port=port,
        SCHEDULER_ORPHAN_POLICY="delete",
        SCHEDULER_DRIFT_DETECT_INTERVAL="1s",
    )


@pytest.mark.asyncio
async def test_a_removed_database_is_imported_from_the_agents(tmp_path: Path) -> None:
    """E04: five workloads on three nodes and an empty store: no agent is told anything, mutations
    are refused with the reason, and an import brings back five records; the same specs complete
    them, and nothing was started twice in the whole time."""
    nodes = [quick_node(name) for name in NODES]
    async with server(tmp_path) as first, agents(first.address, *nodes) as fleet:
        async with watching(first.address) as eye, client(first.address) as stub:
            assert await eye.until(
                lambda seen: [node.status for node in seen.nodes] == ["Ready"] * 3, 20
            )
            for name in WORK:
                await stub.ApplyWorkload(container(name), timeout=5)
            assert await eye.until(
                lambda seen: [view.status for view in seen.workloads] == ["Running"] * 5, 20
            )
            places = {view.workload_id: view.assigned_node_id for view in eye.picture.workloads}
        before = changes(fleet)
        await lose_the_store(first)

        async with server(tmp_path, port=first.port) as second, client(second.address) as stub:
            assert "marker is missing" in await refused(stub)
            assert await all_known(second.address) == places
            assert (await ctl(second.address, "import")).code == 3, "a script has to say yes"
            assert await mode(second.address) == "recovery"
            done = await ctl(second.address, "import", "--reason", "new disk", "--yes")
            assert done.code == 0, done.err
            assert "5 workloads of 3 nodes imported" in done.err
            assert await mode(second.address) == "normal"
            async with watching(second.address) as eye:
                assert await eye.until(
                    lambda seen: (
                        {view.workload_id: view.assigned_node_id for view in seen.workloads}
                        == places
                        and [view.status for view in seen.workloads] == ["Running"] * 5
                        and [node.status for node in seen.nodes] == ["Ready"] * 3
                    ),
                    40,
                ), second.text
                told = await ctl(second.address, "explain", "w0")
                assert f"imported from {places['w0']}; apply its spec to complete it" in told.out
                for name in WORK:
                    await stub.ApplyWorkload(container(name), timeout=5)
                assert "imported" not in (await ctl(second.address, "explain", "w0")).out
                assert changes(fleet) == before
                await stub.ApplyWorkload(container("new"), timeout=5)
                assert await eye.until(
                    lambda seen: [view.status for view in seen.workloads] == ["Running"] * 6, 40
                ), "new work comes to nodes that were listed again"
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0
            assert "this is a bug" not in second.text

        async with server(tmp_path, port=first.port) as third:
            assert await mode(third.address) == "normal", "what is known of the store followed"


@pytest.mark.asyncio
async def test_a_removed_database_is_acknowledged(tmp_path: Path) -> None:
    """The operator wants to begin anew: what runs is left alone, even under the policy `delete`;
    a data folder that nobody has seen before needs no acknowledgement."""
    nodes = [quick_node(name) for name in NODES]
    async with deleting_server(tmp_path) as first, agents(first.address, *nodes) as fleet:
        assert await mode(first.address) == "normal"
        async with watching(first.address) as eye, client(first.address) as stub:
            await stub.ApplyWorkload(container("w0"), timeout=5)
            assert await eye.until(
                lambda seen: [view.status for view in seen.workloads] == ["Running"], 20
            )
        before = changes(fleet)
        await lose_the_store(first)
        async with deleting_server(tmp_path, first.port) as second:
            assert await mode(second.address) == "recovery"
            order = ("acknowledge-empty", "--reason", "a new start", "--yes")
            done = await ctl(second.address, *order)
            assert done.code == 0, done.err
            async with watching(second.address) as eye:
                assert await eye.until(
                    lambda seen: [node.status for node in seen.nodes] == ["Ready"] * 3, 40
                )
            drifts = ""
            for _ in range(40):
                drifts = (await ctl(second.address, "drift", "list")).out
                if "older than this cluster's records" in drifts:
                    break
            assert "older than this cluster's records" in drifts, second.text
        assert changes(fleet) == before
        assert sum(fleet.node(name).running for name in NODES) == 1
