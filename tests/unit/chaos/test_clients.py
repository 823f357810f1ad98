"""What a client of the chaos runs makes of the answers that it gets."""

from __future__ import annotations

from typing import Any, cast

import grpc
import grpc.aio
import pytest
from attrs import define

from persys_core.sim.invariants import Rule
from persys_proto.control.v1 import control_pb2 as pb
from proofs.chaos.clients import Client, Load, Outcome, Stub, Tally
from proofs.chaos.promises import GONE, Promises

NOT_FOUND = pb.DeleteWorkloadResponse(error_message='workload "w" not found')
DELETED = pb.DeleteWorkloadResponse(success=True)
APPLIED = pb.ApplyWorkloadResponse(success=True)
REFUSED = pb.ApplyWorkloadResponse(error_message="too large")


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    """A call that ended with this code."""
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing)


@define
class FakeStub:
    """Answers what it was told to, one after the other."""

    answers: list[Any]

    async def ApplyWorkload(self, request: object, timeout: float) -> Any:
        """The next answer."""
        return self._next()

    async def DeleteWorkload(self, request: object, timeout: float) -> Any:
        """The next answer."""
        return self._next()

    def _next(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def asked(generation: int, *answers: Any) -> tuple[set[int], Tally]:
    """What may stand of a workload in generation 1 after this; all answers are used up."""
    promises, tally = Promises(), Tally()
    one = Client.create(0, (), Load(), promises, tally, seed=1)
    await one.ask([cast("Stub", FakeStub([APPLIED]))], "w", 1)
    stub = FakeStub(list(answers))
    await one.ask([cast("Stub", stub)], "w", generation)
    assert not stub.answers
    return promises.by_id["w"].possible, tally


@pytest.mark.asyncio
async def test_what_was_accepted_is_all_that_is_right() -> None:
    """A later generation, and the end."""
    assert (await asked(2, APPLIED))[0] == {2}
    assert (await asked(GONE, DELETED))[0] == {GONE}


@pytest.mark.asyncio
async def test_what_was_refused_changes_nothing() -> None:
    """By an answer or by a code that says so."""
    for answer in (REFUSED, failure(grpc.StatusCode.INVALID_ARGUMENT)):
        possible, tally = await asked(2, answer)
        assert possible == {1}
        assert tally.answers[Outcome.REFUSED] == 1


@pytest.mark.asyncio
async def test_what_nobody_knows_is_asked_again() -> None:
    """A deletion whose first try came through is not there at the second one: it is done."""
    lost = failure(grpc.StatusCode.UNAVAILABLE)

    possible, tally = await asked(GONE, lost, NOT_FOUND)

    assert possible == {GONE}
    assert tally.violations == []
    assert tally.answers[Outcome.UNKNOWN] == tally.answers[Outcome.NOT_THERE] == 1


@pytest.mark.parametrize("answer", [NOT_FOUND, failure(grpc.StatusCode.NOT_FOUND)])
@pytest.mark.asyncio
async def test_what_was_accepted_and_is_not_there_is_told(answer: Any) -> None:
    """At the first try of its deletion nobody but a fault can have removed it."""
    _, tally = await asked(GONE, answer)

    assert [each.rule for each in tally.violations] == [Rule.NOTHING_LOST]
