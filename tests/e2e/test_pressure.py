"""Many nodes, and one that never answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from persys_core.sim.agent_settings import AgentSettings
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.dev.picture import ClusterEye
from tests.e2e.processes import (
    agents,
    client,
    container,
    eventually,
    quick_node,
    server,
    watching,
)
from tests.fleets.fleet import Fleet

pytestmark = pytest.mark.slow
MANY = "many nodes without boot ids, which take no processor from the scheduler"
SLOW_SECONDS = 0.2
STRETCHES = 4
DEADLINE_SECONDS = 1.0


def listed_node(node_id: str) -> AgentSettings:
    """A node whose heartbeats, without a boot id, do not spare the scheduler its question."""
    return quick_node(node_id, sends_boot_id=False)


def lists(fleet: Fleet) -> dict[str, int]:
    """How often each node was asked for everything that it runs."""
    return {
        node.node_id: fleet.model(node.node_id).journal.counts["list"] for node in fleet.nodes()
    }


@asynccontextmanager
async def silent_peer() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter]]]:
    """An address that takes connections and never says a word, and who came."""
    connections: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        while await reader.read(4096):
            pass

    listening = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        yield f"{host}:{port}", connections
    finally:
        listening.close()
        for writer in connections:
            writer.close()
        await listening.wait_closed()


@asynccontextmanager
async def silent_node(
    stub: control_pb2_grpc.AgentControlAsyncStub, endpoint: str
) -> AsyncIterator[None]:
    """A node that registers and beats, and whose agent is ``endpoint``."""
    capabilities = pb.NodeCapabilities(
        cpu_total_millicores=4000, memory_total_mb=8192, supported_workload_types=["container"]
    )
    await stub.RegisterNode(
        pb.RegisterNodeRequest(node_id="silent", capabilities=capabilities, grpc_endpoint=endpoint),
        timeout=5,
    )

    async def beat() -> None:
        while True:
            await stub.Heartbeat(pb.HeartbeatRequest(node_id="silent"), timeout=5)
            await asyncio.sleep(0.5)

    beats = asyncio.create_task(beat())
    try:
        yield
    finally:
        beats.cancel()
        await asyncio.gather(beats, return_exceptions=True)


@pytest.mark.simulated(MANY)
@pytest.mark.asyncio
async def test_one_silent_agent_holds_up_nobody(tmp_path: Path) -> None:
    """G02: one of ten agents never answers; the others are looked at in each cycle and work goes
    on there; a cycle ends within the deadline of a call."""
    async with (
        server(tmp_path, SCHEDULER_AGENT_RPC_TIMEOUT=f"{DEADLINE_SECONDS:g}s") as running,
        silent_peer() as (endpoint, connections),
        agents(running.address, *(listed_node(f"n{number}") for number in range(9))) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
        silent_node(stub, endpoint),
    ):
        assert await eye.until(
            lambda seen: [node.status for node in seen.nodes] == ["Ready"] * 10, 20
        )
        await eventually(lambda: bool(connections), "the silent agent is called")
        before = lists(fleet)
        cycles = 4
        await eventually(
            lambda: all(lists(fleet)[name] >= count + cycles for name, count in before.items()),
            f"each other node is listed in {cycles} cycles",
            cycles * (DEADLINE_SECONDS + 1),
        )
        await asyncio.gather(
            *(stub.ApplyWorkload(container(f"w{number}"), timeout=5) for number in range(20))
        )
        assert await eye.until(
            lambda seen: [view.status for view in seen.workloads] == ["Running"] * 20, 10
        )
        assert not eye.picture.on_node("silent"), "it was never listed, so nothing is placed there"


@pytest.mark.simulated(MANY)
@pytest.mark.asyncio
async def test_nothing_blocks_the_loop(tmp_path: Path) -> None:
    """N08: with 100 nodes that beat each second, and work that comes and goes, asyncio's own watch
    sees no callback that keeps the others waiting.

    A machine that is busy with other things takes the processor away in the middle of callbacks,
    now here and now there; what blocks by itself does so at its place every time. So no place may
    show in each of a few stretches.
    """
    nodes = [listed_node(f"n{number:03d}") for number in range(100)]
    async with (
        server(tmp_path, debug=True) as running,
        agents(running.address, *nodes) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        assert await eye.until(
            lambda seen: sum(node.status == "Ready" for node in seen.nodes) == len(nodes), 60
        )
        always: set[str] | None = None
        for stretch in range(STRETCHES):
            seen_before = len(running.text)
            await _cycles_with_work(stub, eye, fleet, stretch)
            found = set(map(place, slow_callbacks(running.text[seen_before:])))
            always = found if always is None else always & found
            if not always:
                break
        assert always == set()
        assert slow_callbacks(running.text, above=1.0) == []


async def _cycles_with_work(
    stub: control_pb2_grpc.AgentControlAsyncStub,
    eye: ClusterEye,
    fleet: Fleet,
    stretch: int,
) -> None:
    """Twenty workloads come, run and go, and every node is listed three times."""
    names = [f"w{stretch}-{number}" for number in range(20)]
    await asyncio.gather(*(stub.ApplyWorkload(container(name), timeout=20) for name in names))
    assert await eye.until(
        lambda seen: [view.status for view in seen.workloads] == ["Running"] * len(names), 30
    )
    requests = [pb.DeleteWorkloadRequest(workload_id=name) for name in names]
    await asyncio.gather(*(stub.DeleteWorkload(request, timeout=20) for request in requests))
    before = lists(fleet)
    await eventually(
        lambda: all(lists(fleet)[name] >= count + 3 for name, count in before.items()),
        "three more cycles",
        60,
    )
    assert await eye.until(lambda seen: not seen.workloads, 30)


def test_slow_callbacks_are_found() -> None:
    """The complaint is read as asyncio writes it, and a short one is let through."""
    line = "[warning  ] Executing <Handle f() at a.py:1> took {} seconds component=asyncio"
    assert slow_callbacks(line.format("0.199")) == []
    assert len(slow_callbacks(line.format("0.201"))) == 1


def test_the_place_of_a_slow_callback_is_found() -> None:
    """A coroutine or handle is one place whatever line it stood at and whatever it awaited."""
    task = (
        "Executing <Task pending name='Task-{}' coro=<NodePass.look_at() running at a.py:{}> took"
    )
    assert place(task.format(1, 88)) == place(task.format(2, 90)) == "NodePass.look_at"
    assert place("Executing <Handle Loop.run() at b.py:5> took 0.3 seconds") == "Loop.run"
    assert place("Executing <Unheard of> took 0.3") == "Executing <Unheard of> took 0.3"


def place(complaint: str) -> str:
    """Whose callback asyncio complains about."""
    found = re.search(r"coro=<([^( ]+)|<\w*Handle ([^( ]+)", complaint)
    return (found[1] or found[2]) if found else complaint


def slow_callbacks(log: str, above: float = SLOW_SECONDS) -> list[str]:
    """The lines in which asyncio complains about more than so many seconds."""
    found = re.finditer(r"Executing .* took ([0-9.]+) seconds", log)
    return [match[0] for match in found if float(match[1]) > above]
