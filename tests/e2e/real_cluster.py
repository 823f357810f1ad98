"""A scheduler with agents on real daemons, and the questions that tests ask of them.

`cluster_of` is for whoever tests something of running containers, `persysctl exec` and `logs` too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from attrs import field, frozen

from persys_core.model.resources import MEMORY
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from persys_server.dev.picture import ClusterEye, Picture
from tests.e2e.agents import RealAgent, real_agent
from tests.e2e.processes import Server, client, watching
from tests.servers.dockerd import Dockerd

__all__ = ["Cluster", "cluster_of"]


@frozen
class Cluster:
    """``agents`` by their node's id. ``history``: every view of a workload, with when it came."""

    server: Server
    agents: dict[str, RealAgent]
    eye: ClusterEye
    stub: control_pb2_grpc.AgentControlAsyncStub
    history: list[tuple[float, pb.WorkloadView]] = field(factory=list)

    async def apply(self, *requests: pb.ApplyWorkloadRequest) -> None:
        """Store wishes."""
        for request in requests:
            answer = await self.stub.ApplyWorkload(request, timeout=10)
            assert answer.success, answer.error_message

    async def until(self, workload_id: str, status: str, seconds: float = 30) -> pb.WorkloadView:
        """Wait until a workload is in this status."""
        await self.eye.until(lambda _: self.status(workload_id) == status, seconds)
        view = self.eye.picture.workload(workload_id)
        assert view is not None
        assert view.status == status, f"{view}\n{self.words()}"
        return view

    async def all_run(self, *workloads: str, on: str = "", seconds: float = 40) -> None:
        """Wait until they run, on that node if one is named."""

        def run(seen: Picture) -> bool:
            views = [seen.workload(each) for each in workloads]
            return all(
                view is not None and view.status == "Running" and on in ("", view.assigned_node_id)
                for view in views
            )

        assert await self.eye.until(run, seconds), f"{self.eye.picture.workloads}\n{self.words()}"

    async def ready(self, *nodes: str, seconds: float = 30) -> None:
        """Wait until these nodes are Ready."""

        def hold(seen: Picture) -> bool:
            found = {each.node_id: each.status for each in seen.nodes}
            return all(found.get(name) == "Ready" for name in nodes)

        assert await self.eye.until(hold, seconds), f"{self.eye.picture.nodes}\n{self.words()}"

    async def beats_again(self, node_id: str, beats: int = 1) -> None:
        """Wait until the node was heard so often after now, and is Ready."""
        after = time.time() + beats

        def hold(seen: Picture) -> bool:
            node = seen.node(node_id)
            return (
                node is not None
                and node.status == "Ready"
                and node.last_heartbeat.ToDatetime().timestamp() > after
            )

        assert await self.eye.until(hold, 30), f"{self.eye.picture.nodes}\n{self.words()}"

    async def delete(self, *workloads: str) -> None:
        """Delete workloads, and wait until nobody knows them."""
        for each in workloads:
            await self.stub.DeleteWorkload(pb.DeleteWorkloadRequest(workload_id=each), timeout=10)
        gone = set(workloads)
        assert await self.eye.until(
            lambda seen: not gone & {each.workload_id for each in seen.workloads}, 30
        ), f"{self.eye.picture.workloads}\n{self.words()}"

    async def until_mode(self, wanted: str, seconds: float = 40) -> None:
        """Wait for an operating mode."""
        async with asyncio.timeout(seconds):
            while True:
                request = pb.GetClusterSummaryRequest()
                if (await self.stub.GetClusterSummary(request, timeout=10)).mode == wanted:
                    return
                await asyncio.sleep(0.2)

    async def cordon(self, node_id: str) -> None:
        """Let nothing new come to a node."""
        done = await self.stub.CordonNode(pb.CordonNodeRequest(node_id=node_id), timeout=10)
        assert done.accepted, done.message

    async def uncordon(self, node_id: str) -> None:
        """Let new work come to it again."""
        done = await self.stub.UncordonNode(pb.UncordonNodeRequest(node_id=node_id), timeout=10)
        assert done.accepted, done.message

    def status(self, workload_id: str) -> str:
        """The status of a workload; empty where there is none."""
        view = self.eye.picture.workload(workload_id)
        return view.status if view is not None else ""

    def place(self, workload_id: str) -> str:
        """The node that a workload is assigned to."""
        view = self.eye.picture.workload(workload_id)
        return view.assigned_node_id if view is not None else ""

    def allocated(self, node_id: str) -> int:
        """Memory that placements hold on a node, in MB."""
        node = self.eye.picture.node(node_id)
        assert node is not None
        return sum(each.amount for each in node.allocated if each.name == MEMORY)

    def was(self, workload_id: str, status: str) -> list[tuple[float, pb.WorkloadView]]:
        """When and how a workload was seen in a status."""
        return [
            (at, view)
            for at, view in self.history
            if (view.workload_id, view.status) == (workload_id, status)
        ]

    def words(self) -> str:
        """What the programs wrote last, for a failure."""
        logs = {"server": self.server.text, **{n: a.text for n, a in self.agents.items()}}
        return "\n".join(f"--- {name}\n{text[-3000:]}" for name, text in logs.items())

    def remember(self, seen: Picture) -> bool:
        """Keep what is new in a picture; never true."""
        newest = {view.workload_id: view for _, view in self.history}
        self.history.extend(
            (time.monotonic(), view)
            for view in seen.workloads
            if newest.get(view.workload_id) != view
        )
        return False


@asynccontextmanager
async def cluster_of(
    running: Server, nodes: dict[str, Dockerd], **settings: str
) -> AsyncIterator[Cluster]:
    """Agents on these daemons, Ready. No program may have met a bug at the end."""
    async with AsyncExitStack() as stack:

        async def start(node_id: str) -> tuple[str, RealAgent]:
            daemon = nodes[node_id]
            agent = real_agent(node_id, daemon, running.address, running.folder, **settings)
            return node_id, await stack.enter_async_context(agent)

        agents = dict(await asyncio.gather(*map(start, nodes)))
        eye = await stack.enter_async_context(watching(running.address))
        stub = await stack.enter_async_context(client(running.address))
        made = Cluster(running, agents, eye, stub)
        remembering = asyncio.create_task(eye.until(made.remember, 1e6))
        stack.callback(remembering.cancel)
        await made.ready(*nodes)
        yield made
        for name, text in {
            "server": running.text,
            **{n: a.text for n, a in agents.items()},
        }.items():
            assert "bug" not in text, f"{name}: {text}"
