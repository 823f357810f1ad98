"""The server dies without a word, or ends as it should; what was promised holds."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import grpc.aio
import pytest

from persys_core.sim.agent_journal import Happening
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.dev.picture import ClusterEye, Picture
from tests.e2e.processes import agents, client, container, eventually, quick_node, server, watching
from tests.fleets.choice import CHOSEN, AgentChoice
from tests.fleets.fleet import Fleet

pytestmark = pytest.mark.slow
BURST, KILLED_AFTER = 200, 60
REAL_BURST, REAL_KILLED_AFTER = 40, 8
"""Of containers, which take a processor."""


def burst_size() -> tuple[int, int]:
    """How many are applied, and after how many answers the server dies."""
    is_real = CHOSEN.agents is AgentChoice.DOCKER
    return (REAL_BURST, REAL_KILLED_AFTER) if is_real else (BURST, KILLED_AFTER)


async def all_ready(eye: ClusterEye, count: int, seconds: float = 20) -> bool:
    """Wait until so many nodes are Ready."""
    return await eye.until(
        lambda seen: sum(node.status == "Ready" for node in seen.nodes) >= count, seconds
    )


def all_running(seen: Picture, count: int) -> bool:
    """Whether there are so many workloads and all run."""
    return [view.status for view in seen.workloads] == ["Running"] * count


async def acknowledged(address: str, enough: asyncio.Event) -> set[str]:
    """Apply a burst at once; the ids that got an answer. ``enough`` is set after some."""
    answered: set[str] = set()
    size, killed_after = burst_size()

    async def apply(number: int) -> None:
        request = container(f"w{number:03d}")
        try:
            answer = await stub.ApplyWorkload(request, timeout=20)
        except grpc.aio.AioRpcError:
            return
        assert answer.success
        answered.add(request.workload_id)
        if len(answered) >= killed_after:
            enough.set()

    async with client(address) as stub:
        await asyncio.gather(*map(apply, range(size)))
    return answered


async def watched_to_the_end(
    stub: control_pb2_grpc.AgentControlAsyncStub,
) -> grpc.aio.AioRpcError:
    """Watch events until the stream ends; how it ended."""
    try:
        async for event in stub.WatchEvents(pb.WatchEventsRequest()):
            assert event.type
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("the stream ended as if there would never be another event")


def starts(fleet: Fleet) -> Counter[str]:
    """How often each workload was started, on any node."""
    return Counter(
        entry.workload_id
        for node in fleet.nodes()
        for entry in fleet.model(node.node_id).journal.entries
        if entry.what is Happening.STARTED
    )


@pytest.mark.asyncio
async def test_no_promise_is_lost_in_a_crash(tmp_path: Path) -> None:
    """SIGKILL amid many applies: each acknowledged one is there, runs, and was started once."""
    nodes = [quick_node(f"n{number}") for number in range(3)]
    async with server(tmp_path) as first, agents(first.address, *nodes) as fleet:
        async with watching(first.address) as eye:
            assert await all_ready(eye, 3)
        enough = asyncio.Event()
        burst = asyncio.create_task(acknowledged(first.address, enough))
        async with asyncio.timeout(20):
            await enough.wait()
        first.signal(signal.SIGKILL)
        promised = await burst
        await first.ended()
        size, killed_after = burst_size()
        assert killed_after <= len(promised) < size, "the kill must fall into the burst"

        async with server(tmp_path, port=first.port) as second, watching(second.address) as eye:

            def all_run(seen: Picture) -> bool:
                status = {view.workload_id: view.status for view in seen.workloads}
                return promised <= status.keys() and set(status.values()) == {"Running"}

            assert await eye.until(all_run, 40), second.text
            known = {view.workload_id for view in eye.picture.workloads}
        counted = starts(fleet)
    assert {workload_id: n for workload_id, n in counted.items() if n != 1} == {}
    assert set(counted) == known


@pytest.mark.asyncio
async def test_an_end_is_quick_and_clean(tmp_path: Path) -> None:
    """SIGTERM: exit code 0 within seconds; watchers are told; agents come back to the next one."""
    async with (
        server(tmp_path) as first,
        agents(first.address, *(quick_node(f"n{number}") for number in range(3))) as fleet,
    ):
        async with watching(first.address) as eye, client(first.address) as stub:
            assert await all_ready(eye, 3)
            await stub.ApplyWorkload(container("w"), timeout=5)
            assert await eye.until(lambda seen: all_running(seen, 1), 10)
            told = asyncio.create_task(watched_to_the_end(stub))
            await asyncio.sleep(0)
            first.signal(signal.SIGTERM)
            async with asyncio.timeout(10):
                error = await told
            assert error.code() is grpc.StatusCode.UNAVAILABLE
            assert "stopping" in (error.details() or "")
        assert await first.ended(5) == 0
        assert "Traceback" not in first.text
        assert "this is a bug" not in first.text

        async with server(tmp_path, port=first.port) as second, watching(second.address) as eye:
            beats = {node.node_id: fleet.model(node.node_id) for node in fleet.nodes()}
            before = {name: model.journal.counts["heartbeat"] for name, model in beats.items()}
            assert await eye.until(
                lambda seen: (
                    len(seen.nodes) == 3
                    and all(
                        model.journal.counts["heartbeat"] > before[name]
                        for name, model in beats.items()
                    )
                    and [view.status for view in seen.workloads] == ["Running"]
                ),
                20,
            ), second.text


@pytest.mark.asyncio
async def test_a_deleted_workload_stays_dead_when_its_node_returns(tmp_path: Path) -> None:
    """A node that was off during the delete has its copy removed as soon as it is back."""
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1")) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        assert await all_ready(eye, 1)
        await stub.ApplyWorkload(container("w"), timeout=5)
        assert await eye.until(lambda seen: all_running(seen, 1), 10)
        await fleet.kill("n1")
        assert await eye.until(lambda seen: seen.nodes[0].status == "NotReady", 10)
        await stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id="w"), timeout=5)
        assert await eye.until(lambda seen: not seen.workloads, 10)

        journal = fleet.model("n1").journal
        assert not list(journal.of("w", Happening.DELETE))
        await fleet.revive("n1")
        await eventually(lambda: any(journal.of("w", Happening.REMOVED)), "the copy is removed")
        assert await all_ready(eye, 1)
        assert fleet.node("n1").running == 0
        await stub.ApplyWorkload(container("w"), timeout=5)
        assert await eye.until(lambda seen: all_running(seen, 1), 10), "the node takes it again"
