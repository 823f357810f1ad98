"""What replicas say of themselves and of each other, as real processes on a real etcd."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig
from persys_adapters.etcd.client.election import campaign
from tests.e2e.etcd_cluster import on
from tests.e2e.processes import (
    Server,
    agents,
    ctl,
    eventually,
    free_port,
    quick_node,
    run_program,
    scraped,
    server,
    server_environment,
)
from tests.servers.etcd import EtcdCluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

NODES = 6
MANIFEST = (
    Path(__file__).parents[2] / "packages/persys-server/src/persys_server/dev/examples/web.yaml"
)
MODES = ("failover", "active-active", "elastic")


@asynccontextmanager
async def three(etcd: EtcdCluster, folder: Path, mode: str) -> AsyncIterator[list[Server]]:
    """Three replicas in this mode."""
    async with AsyncExitStack() as stack:

        async def start(index: int) -> Server:
            own = folder / str(index)
            own.mkdir()
            is_sharded = mode == "active-active"
            return await stack.enter_async_context(
                server(
                    own,
                    ready_seconds=60,
                    PERSYS_STORE="etcd",
                    ETCD_ENDPOINTS=",".join(etcd.endpoints),
                    SCHEDULER_HA_MODE=mode,
                    SCHEDULER_SHARD_COUNT="3" if is_sharded else "",
                    SCHEDULER_SHARD_INDEX=str(index) if is_sharded else "",
                )
            )

        yield await asyncio.gather(*map(start, range(3)))


def page(running: Server, path: str) -> Mapping[str, Any]:
    """A page as JSON; any status."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{running.metrics_port}{path}", timeout=5) as answer:
        found: Mapping[str, Any] = json.loads(answer.read())
        return found


async def all_say(servers: list[Server], owned: int) -> list[Mapping[str, Any]]:
    """Each of /readyz, once every replica knows the others and the nodes are divided."""
    seen: list[Mapping[str, Any]] = []

    def settled() -> bool:
        seen[:] = [page(each, "/readyz") for each in servers]
        return (
            all(len(each["replicas"]) == len(servers) for each in seen)
            and sum(each["coverage"]["owned"] for each in seen) == owned
            and not any(each["problems"] for each in seen)
        )

    await eventually(settled, f"the replicas agree; they say {seen}", 40)
    return seen


@pytest.mark.parametrize("mode", MODES)
async def test_replicas_name_each_other(etcd_alone: EtcdCluster, tmp_path: Path, mode: str) -> None:
    """Each knows all three with their addresses, every node has one owner, and the pages, the
    command line and the metrics say the same; after a clean stop the others have its nodes."""
    async with three(etcd_alone, tmp_path, mode) as servers:
        nodes = [quick_node(f"n{number}") for number in range(NODES)]
        async with agents(servers[0].address, *nodes):
            said = await all_say(servers, NODES)
            assert {each["address"] for each in said[0]["replicas"]} == {
                each.address for each in servers
            }
            assert all(each["haMode"] == mode and each["foreignLeader"] == "" for each in said)
            leaders = {each["leader"] for each in said}
            assert len(leaders) == (3 if mode == "active-active" else 1)
            assert leaders <= {each["instance"] for each in said}
            shown = json.loads((await ctl(servers[1].address, "summary", "-o", "json")).out)
            assert (shown["instanceId"], shown["haMode"]) == (said[1]["instance"], mode)
            assert len(shown["replicas"]) == 3
            told = [await scraped(each) for each in servers]
            for text, each in zip(told, said, strict=True):
                owned = f"persys_scheduler_nodes_owned {each['coverage']['owned']}.0\n"
                assert owned in text
            servers.pop().process.terminate()
            if mode == "active-active":
                gone = said[2]["coverage"]["owned"]
                await eventually(
                    lambda: page(servers[0], "/health")["coverage"]["unowned"] == gone,
                    "the shard without a replica is told",
                )
            else:
                await all_say(servers, NODES)


async def test_a_replica_that_shares_otherwise_is_refused(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """L05: whoever comes later in another mode ends with an error that names both, and the one
    that was there goes on."""
    on_etcd = {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": ",".join(etcd_alone.endpoints)}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    async with server(tmp_path / "first", **on_etcd) as running:  # type: ignore[arg-type]
        await eventually(lambda: page(running, "/readyz")["role"] == "leader", "it leads")
        env = server_environment(tmp_path / "second", SCHEDULER_HA_MODE="elastic", **on_etcd)
        ports = ("--grpc-port", str(free_port()), "--metrics-port", str(free_port()))
        ended = await run_program("persys-server", "run", "--insecure", *ports, env=env)
        assert ended.code == 2, "a supervisor does not start it again and again"
        assert "SCHEDULER_HA_MODE is elastic here and failover at replica" in ended.out + ended.err
        assert len(page(running, "/readyz")["replicas"]) == 1


async def test_a_scheduler_that_is_not_ours_is_recognised(
    etcd_alone: EtcdCluster, tmp_path: Path
) -> None:
    """While another program holds the leader's key, wishes are refused with its name, reads are
    served, and the page says so; a record that it writes is told. With its key gone all is as
    before (decisions §4)."""
    client = EtcdClient(EtcdConfig(endpoints=etcd_alone.endpoints))
    lease = await client.lease_grant(60)
    await campaign(client, b"/persys/scheduler/leader", lease.id, b"reference-7")
    async with on(etcd_alone, tmp_path) as running:
        await eventually(
            lambda: page(running, "/readyz")["foreignLeader"] == "reference-7", "it is seen"
        )
        said = page(running, "/readyz")
        assert (said["role"], any("reference-7" in each for each in said["problems"])) == (
            "standby",
            True,
        )
        refused = await ctl(running.address, "apply", "-f", str(MANIFEST))
        assert refused.code != 0
        assert "reference-7 leads this cluster" in refused.out + refused.err
        assert (await ctl(running.address, "get", "workloads")).code == 0
        await client.put(b"/nodes/stray", b'{"nodeId": "stray"}')
        await client.lease_revoke(lease.id)
        await client.aclose()
        await eventually(lambda: page(running, "/readyz")["role"] == "leader", "it leads")
        events = await ctl(running.address, "events", "-o", "json")
        assert "ForeignWriter" in events.out
        assert page(running, "/readyz")["foreignLeader"] == ""
