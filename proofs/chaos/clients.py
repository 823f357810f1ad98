"""Clients that apply, change and delete workloads all the time, and note what they are answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

import grpc
import grpc.aio
from attrs import define, field

from persys_core.sim.invariants import Rule
from persys_core.sim.rng import stream
from persys_proto.control.v1 import control_pb2 as pb
from persys_proto.control.v1 import control_pb2_grpc
from proofs.chaos.promises import GONE, Promises, image_of
from proofs.chaos.violations import Violation
from tests.e2e.processes import client, container

__all__ = ["Client", "Load", "Outcome", "Stub", "Tally"]

Stub: TypeAlias = "control_pb2_grpc.AgentControlAsyncStub"
CALL_SECONDS = 3.0
AGAIN_SECONDS = 0.2
_NOT_FOUND = "not found"
"""How the answer to a deletion of what is not there ends."""
_DEFINITE = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class Outcome(StrEnum):
    """What a client knows of a request afterwards."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    NOT_THERE = "not there"


@define
class Load:
    """How much work comes: clients, requests a second in all, and workloads that stand at most.

    ``cpu`` in millicores per workload.
    """

    clients: int = 4
    rate: float = 4.0
    most: int = 64
    cpu: int = 1_000


@define
class Tally:
    """What all clients were answered."""

    answers: dict[Outcome, int] = field(factory=lambda: dict.fromkeys(Outcome, 0))
    refusals: list[str] = field(factory=list)
    violations: list[Violation] = field(factory=list)
    longest_without: float = 0.0
    _accepted_at: float = 0.0

    def answered(self, outcome: Outcome, waited: float, now: float) -> None:
        """One answer; ``waited``: seconds since its client had something to ask for."""
        self.answers[outcome] += 1
        if outcome is Outcome.ACCEPTED:
            since = max(now - waited, self._accepted_at)
            self.longest_without = max(self.longest_without, now - since)
            self._accepted_at = now


@define(eq=False)
class Client:
    """One of them: owns its workloads and asks for one thing at a time."""

    number: int
    addresses: Sequence[str]
    load: Load
    promises: Promises
    tally: Tally
    rng: random.Random
    _generations: dict[str, int] = field(factory=dict)
    _made: int = 0
    _turn: int = 0

    @classmethod
    def create(
        cls,
        number: int,
        addresses: Sequence[str],
        load: Load,
        promises: Promises,
        tally: Tally,
        seed: int,
    ) -> Client:
        """A client whose wishes follow from the seed and its number."""
        rng = stream(seed, "client", str(number))
        return cls(number, addresses, load, promises, tally, rng, turn=number)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until ``stop``; what is under way then is seen through."""
        async with AsyncExitStack() as stack:
            stubs = [await stack.enter_async_context(client(each)) for each in self.addresses]
            while not stop.is_set():
                await self.ask(stubs, *self._wish())
                pause = self.rng.expovariate(self.load.rate / self.load.clients)
                await _either(stop, pause)

    def _wish(self) -> tuple[str, int]:
        """The next thing to ask for: which workload, in which generation."""
        full = len(self._generations) >= self.load.most // self.load.clients
        draw = self.rng.random()
        if not self._generations or (draw < 0.5 and not full):
            self._made += 1
            return f"c{self.number}-{self._made}", 1
        workload_id = self.rng.choice(sorted(self._generations))
        if draw > 0.75 or full:
            return workload_id, GONE
        return workload_id, self._generations[workload_id] + 1

    async def ask(
        self,
        stubs: Sequence[Stub],
        workload_id: str,
        generation: int,
    ) -> None:
        """Ask until it is known what became of it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            asking = self.promises.asks(workload_id, generation, datetime.now(UTC))
            outcome = await self._once(stubs[self._turn % len(stubs)], workload_id, generation)
            self.tally.answered(outcome, loop.time() - began, loop.time())
            if outcome is not Outcome.UNKNOWN:
                break
            self.promises.unknown(asking)
            self._turn += 1
            await asyncio.sleep(AGAIN_SECONDS)
        if outcome is Outcome.NOT_THERE:
            self._not_there(workload_id, generation)
        if outcome is Outcome.REFUSED:
            self.promises.refused(asking)
            return
        self.promises.accepted(asking, datetime.now(UTC))
        if generation == GONE:
            self._generations.pop(workload_id, None)
        else:
            self._generations[workload_id] = generation

    async def _once(self, stub: Stub, workload_id: str, generation: int) -> Outcome:
        try:
            if generation == GONE:
                request = pb.DeleteWorkloadRequest(workload_id=workload_id)
                gone = await stub.DeleteWorkload(request, timeout=CALL_SECONDS)
                return self._outcome(gone.success, gone.error_message)
            wish = container(workload_id, image_of(generation), cpu=self.load.cpu)
            done = await stub.ApplyWorkload(wish, timeout=CALL_SECONDS)
            return self._outcome(done.success, done.error_message)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return Outcome.NOT_THERE
            if error.code() in _DEFINITE:
                return self._outcome(False, f"{error.code().name}: {error.details()}")
            return Outcome.UNKNOWN

    def _outcome(self, success: bool, message: str) -> Outcome:
        if success:
            return Outcome.ACCEPTED
        if message.endswith(_NOT_FOUND):
            return Outcome.NOT_THERE
        self.tally.refusals.append(message)
        return Outcome.REFUSED

    def _not_there(self, workload_id: str, generation: int) -> None:
        """Right only where an earlier try of the same deletion may have come through."""
        promise = self.promises.by_id[workload_id]
        if generation != GONE or GONE not in promise.doubtful:
            self.tally.violations.append(
                Violation(
                    Rule.NOTHING_LOST,
                    "it was accepted, and a replica says that it does not exist",
                    datetime.now(UTC),
                    0,
                    (workload_id,),
                )
            )


async def _either(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
