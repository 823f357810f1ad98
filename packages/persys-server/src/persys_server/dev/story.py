"""The story of a demonstration: nodes join, work is placed, a node dies, its work moves on.

Decided here: the order, what is said, and how long each part may take. Whether it went well is
``verdict``'s to say; how it looks, a teller's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import grpc.aio
from attrs import frozen

from persys_proto.control.v1 import control_pb2 as pb
from persys_server.dev.picture import Picture
from persys_server.dev.tellers import Teller
from persys_server.dev.verdict import (
    Finding,
    has_moved,
    has_settled,
    is_at_rest,
    is_running,
    judge_workload,
    victim_of,
)

__all__ = ["Eye", "Pace", "Story"]

_CHANGES_WAITED_FOR = 10

Kill = Callable[[str], Awaitable[object]]


class Eye(Protocol):
    """What the story needs of the cluster; ``ClusterEye`` has it."""

    picture: Picture

    async def until(self, holds: Callable[[Picture], bool], seconds: float) -> bool:
        """Wait until ``holds`` is true of a picture; false where it is not in time."""
        ...

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        """Store a wish."""
        ...

    async def explain(self, workload_id: str) -> pb.Explanation:
        """Why a workload stands where it stands."""
        ...


@frozen
class Pace:
    """Seconds: how long each part may take, and how long a person gets to read."""

    joining: float = 15.0
    settling: float = 40.0
    moving: float = 40.0
    calm: float = 3.5
    reading: float = 0.0


class Story:
    """Told once. ``kill`` switches a node off; ``agents`` says what an agent is. ``run`` gives what
    was found, ``waiting`` names the workloads that it left without a node."""

    def __init__(
        self,
        eye: Eye,
        teller: Teller,
        requests: Sequence[pb.ApplyWorkloadRequest],
        *,
        nodes: int,
        kill: Kill,
        pace: Pace,
        agents: str = "simulated agent",
    ) -> None:
        self._eye = eye
        self._teller = teller
        self._requests = requests
        self._nodes = nodes
        self._kill = kill
        self._pace = pace
        self._agents = agents
        self.waiting: list[str] = []
        self._applied: list[str] = []
        self._findings: list[Finding] = []

    async def run(self) -> Sequence[Finding]:
        """Tell it all; the findings, those of the workloads last."""
        await self._nodes_join()
        await self._work_is_applied()
        await self._work_settles()
        await self._node_dies()
        await self._waiting_is_explained()
        return self._findings

    async def _nodes_join(self) -> None:
        self._teller.step("Nodes join")
        self._teller.say(
            f"{_count(self._nodes, self._agents)} register with the scheduler over gRPC and"
            " send a heartbeat every second."
        )
        joined = await self._eye.until(
            lambda picture: _ready(picture) >= self._nodes, self._pace.joining
        )
        ready = _ready(self._eye.picture)
        self._note("nodes", joined, f"{ready} of {self._nodes} joined")
        await self._read()

    async def _work_is_applied(self) -> None:
        self._teller.step("Work is applied")
        self._teller.say(
            f"{_count(len(self._requests), 'workload')} from the examples are sent, as `persysctl"
            " apply` would. Each gets the node that suits it best, or a reason why there is none."
        )
        for request in self._requests:
            await self._apply(request)

    async def _apply(self, request: pb.ApplyWorkloadRequest) -> None:
        try:
            await self._eye.apply(request)
        except grpc.aio.AioRpcError as error:
            why = f"was refused: {error.details()}"
            self._note(request.workload_id, False, why)
            self._teller.say(f"{request.workload_id} {why}")
            return
        self._applied.append(request.workload_id)

    async def _work_settles(self) -> None:
        self._teller.step("Work starts")
        self._teller.say(
            "The agents start what they were given and report it. The scheduler shows what it"
            " wants and what it sees, side by side."
        )
        settled = await self._eye.until(
            lambda picture: has_settled(picture, self._applied), self._pace.settling
        )
        await self._calm()
        running = sum(map(is_at_rest, self._eye.picture.workloads))
        if settled:
            self._teller.say(f"{_count(running, 'workload')} run or have ended well.")
        else:
            self._teller.say("Not everything came to rest in time.")
        await self._read()

    async def _calm(self) -> None:
        """Wait until no status changes for a while, so that short jobs are seen to end."""
        for _ in range(_CHANGES_WAITED_FOR):
            before = _statuses(self._eye.picture)

            def differs(picture: Picture, before: object = before) -> bool:
                return _statuses(picture) != before

            if not await self._eye.until(differs, self._pace.calm):
                return

    async def _node_dies(self) -> None:
        self._teller.step("A node dies")
        victim = victim_of(self._eye.picture)
        if not victim:
            self._teller.say(
                "No node is killed: none runs a container and can be spared. Try more nodes."
            )
            return
        work = [view.workload_id for view in self._eye.picture.on_node(victim) if is_running(view)]
        self._teller.say(
            f"{victim} is switched off. It runs {_listed(work)}. Nobody tells the scheduler: it"
            " notices that heartbeats are missing, waits out the grace, and moves the work."
        )
        await self._read()
        await self._kill(victim)
        await self._work_moves(victim, work)

    async def _work_moves(self, victim: str, work: Sequence[str]) -> None:
        moved = await self._eye.until(
            lambda picture: has_moved(picture, work, victim), self._pace.moving
        )
        places = ", ".join(f"{each} to {_node_of(self._eye.picture, each)}" for each in work)
        text = f"{_listed(work)} moved away from {victim}" if moved else "not all work moved"
        self._note(f"{victim} killed", moved, f"{text}: {places}")
        self._teller.say(f"Moved: {places}." if moved else f"Not moved in time: {places}.")
        await self._read()

    async def _waiting_is_explained(self) -> None:
        self._teller.step("What waits is explained")
        waiting = self.waiting = [each for each in self._applied if not self._rests(each)]
        if not waiting:
            self._teller.say("Nothing waits.")
        else:
            self._teller.say(
                f"{_listed(waiting)} cannot be placed. Every node that was left out is counted"
                " under a reason, with the numbers."
            )
        explanations = {each: await self._explanation(each) for each in waiting}
        for workload_id in self._applied:
            finding = judge_workload(self._eye.picture, workload_id, explanations)
            self._note(finding.subject, finding.is_well, finding.text)

    def _rests(self, workload_id: str) -> bool:
        view = self._eye.picture.workload(workload_id)
        return view is not None and is_at_rest(view)

    async def _explanation(self, workload_id: str) -> pb.Explanation:
        try:
            explanation = await self._eye.explain(workload_id)
        except grpc.aio.AioRpcError as error:
            return pb.Explanation(summary=error.details() or "")
        self._teller.explain(workload_id, explanation)
        return explanation

    def _note(self, subject: str, is_well: bool, text: str) -> None:
        self._findings.append(Finding(subject, is_well, text))

    async def _read(self) -> None:
        await asyncio.sleep(self._pace.reading)


def _ready(picture: Picture) -> int:
    return sum(node.status == "Ready" for node in picture.nodes)


def _statuses(picture: Picture) -> list[tuple[str, str]]:
    return [(view.workload_id, view.status) for view in picture.workloads]


def _node_of(picture: Picture, workload_id: str) -> str:
    view = picture.workload(workload_id)
    return view.assigned_node_id if view and view.assigned_node_id else "nowhere"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
