"""What stands around every RPC: ids, deadlines, metrics, phases and errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from persys_core.model.errors import (
    FieldError,
    FrozenError,
    InvalidInputError,
    NotFoundError,
    PersysError,
    RefusedError,
)
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    CommitTooLargeError,
    StoreUnavailableError,
)
from persys_core.ports.observer import Metric
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.errors import answer_of
from persys_server.grpc.interceptors import REQUEST_ID_KEY
from persys_server.observability.labels import METHODS
from tests.unit.server.fakes import FakeScheduler, Loopback, loopback
from tests.unit.server.messages import apply, container

pytestmark = pytest.mark.slow

GET = pb.GetWorkloadRequest(workload_id="w1")


def request_id(metadata: Iterable[tuple[str, object]] | None) -> str:
    return str(dict(metadata or ())[REQUEST_ID_KEY])


def bugs(at: Loopback) -> float:
    counter = at.metrics.counters[Metric.BUGS]
    return sum(s.value for f in counter.collect() for s in f.samples if s.name.endswith("_total"))


async def failing(at: Loopback, **options: object) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await at.stub.GetWorkload(GET, **options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.asyncio
async def test_the_callers_request_id_comes_back() -> None:
    """With an answer and with an error alike."""
    async with loopback() as at:
        call = at.stub.GetWorkload(GET, metadata=((REQUEST_ID_KEY, "abc-1"),))
        await call
        assert request_id(await call.trailing_metadata()) == "abc-1"
        at.scheduler.error = StoreUnavailableError("away")
        error = await failing(at, metadata=((REQUEST_ID_KEY, "abc-2"),))
        assert request_id(error.trailing_metadata()) == "abc-2"


@pytest.mark.asyncio
@pytest.mark.parametrize("given", [None, "two words", "x" * 200])
async def test_a_request_without_a_usable_id_gets_one(given: str | None) -> None:
    """What cannot stand in a log line is replaced."""
    async with loopback() as at:
        metadata = ((REQUEST_ID_KEY, given),) if given else ()
        call = at.stub.GetWorkload(GET, metadata=metadata)
        await call
        made = request_id(await call.trailing_metadata())
        assert made != given
        assert len(made) == 32


@pytest.mark.asyncio
async def test_bad_input_carries_rich_details() -> None:
    """google.rpc.BadRequest names every field; the text does too."""
    async with loopback() as at:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.ApplyWorkload(apply(container(image=""), workload_id="a/b"))
        error = caught.value
        metadata = dict(error.trailing_metadata())
        details = error_details_pb2.BadRequest()
        status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
        assert status.details[0].Unpack(details)
        fields = [violation.field for violation in details.field_violations]
        assert fields == ["workload_id", "spec.container.image"]
        assert all(field in str(error.details()) for field in fields)
        assert status.message == error.details()
        assert request_id(error.trailing_metadata())


@pytest.mark.asyncio
async def test_hundreds_of_wrong_fields_still_fit_into_an_answer() -> None:
    """Headers are small: what does not fit is told as a number, and the call does not break."""
    async with loopback() as at:
        ports = [pb.Port(host_port=-1, container_port=-1)] * 200
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.ApplyWorkload(apply(container(ports=ports), workload_id="é" * 300))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "wrong fields" in str(caught.value.details())


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_bug_tells_the_caller_an_id_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """INTERNAL without our insides; the log has them, and the bug is counted."""
    caplog.set_level(logging.ERROR)
    async with loopback(FakeScheduler(error=ValueError("insides /etc/passwd"))) as at:
        error = await failing(at, metadata=((REQUEST_ID_KEY, "abc-1"),))
        assert error.code() is grpc.StatusCode.INTERNAL
        assert "abc-1" in str(error.details())
        assert "insides" not in str(error.details())
        assert bugs(at) == 1
        assert at.served() == {("GetWorkload", "Internal"): 1}


@pytest.mark.asyncio
async def test_expected_errors_are_no_bugs() -> None:
    """Metrics count them under their code."""
    async with loopback(FakeScheduler(error=StoreUnavailableError("away"))) as at:
        assert (await failing(at)).code() is grpc.StatusCode.UNAVAILABLE
        at.scheduler.error = None
        await at.stub.GetWorkload(GET)
        assert bugs(at) == 0
        assert at.served() == {("GetWorkload", "Unavailable"): 1, ("GetWorkload", "OK"): 1}


@pytest.mark.asyncio
async def test_secrets_of_the_request_are_not_in_its_error() -> None:
    """A04: an error of the core that echoes a secret is cleaned before it is told."""
    async with loopback(FakeScheduler(error=StoreUnavailableError("cannot put s3cr3t-XYZ"))) as at:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.ApplyWorkload(apply(container(env={"TOKEN": "s3cr3t-XYZ"})))
        assert caught.value.details() == "cannot put ***"


@pytest.mark.asyncio
async def test_before_and_after_serving_calls_are_turned_away() -> None:
    """Starting and stopping are UNAVAILABLE, which clients try elsewhere."""
    async with loopback() as at:
        at.phase.stop()
        error = await failing(at)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "stopping" in str(error.details())
        assert at.scheduler.asked == []


@pytest.mark.asyncio
async def test_the_callers_deadline_ends_the_work() -> None:
    """A caller that is gone is not worked for; the call is counted."""
    async with loopback(FakeScheduler(hold=asyncio.Event())) as at:
        error = await failing(at, timeout=0.05)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(at.metrics.counted.wait(), 5)
        assert set(at.served()) <= {
            ("GetWorkload", "DeadlineExceeded"), ("GetWorkload", "Canceled"),
        }  # fmt: skip


@pytest.mark.asyncio
async def test_a_call_without_a_deadline_gets_one() -> None:
    """G02: a call that nobody bounds is bounded by the server."""
    async with loopback(FakeScheduler(hold=asyncio.Event()), deadline_seconds=0.05) as at:
        error = await failing(at)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "0.05 s" in str(error.details())


@pytest.mark.asyncio
async def test_a_read_that_cannot_catch_up_says_so_in_time() -> None:
    """min_revision: UNAVAILABLE before the caller's deadline, so that it learns why."""
    async with loopback(FakeScheduler(hold=asyncio.Event())) as at:
        request = pb.GetWorkloadRequest(workload_id="w1", min_revision=99)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.stub.GetWorkload(request, timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "99" in str(caught.value.details())


@pytest.mark.asyncio
async def test_an_unknown_method_adds_no_series() -> None:
    """M02: names that do not exist are answered by gRPC and counted nowhere."""
    async with loopback() as at:
        call = at.channel.unary_unary("/persys.control.v1.AgentControl/Nope")  # type: ignore[var-annotated]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert at.served() == {}
        assert "/persys.control.v1.AgentControl/Nope" not in METHODS


@pytest.mark.parametrize(
    ("error", "code", "part"),
    [
        (AmbiguousCommitError("lost"), grpc.StatusCode.UNAVAILABLE, "send the same request again"),
        (CommitTooLargeError("101"), grpc.StatusCode.RESOURCE_EXHAUSTED, "101"),
        (StoreUnavailableError(""), grpc.StatusCode.UNAVAILABLE, "StoreUnavailableError"),
        (InvalidInputError([FieldError("a", "b")]), grpc.StatusCode.INVALID_ARGUMENT, "a: b"),
    ],
)  # fmt: skip
def test_the_table_of_errors(error: PersysError, code: grpc.StatusCode, part: str) -> None:
    """Each error of the core has one code, and a text that is never empty."""
    answer = answer_of(error)
    assert answer is not None
    assert answer.code is code
    assert part in answer.text


@pytest.mark.parametrize(
    "error",
    [InvalidInputError(()), NotFoundError("node", "n"), RefusedError(), FrozenError(),
     StoreUnavailableError()],
)  # fmt: skip
def test_the_errors_that_the_api_names_are_in_the_table(error: PersysError) -> None:
    """What control.api promises to raise is told by a code, not as a bug; other errors are bugs."""
    answer = answer_of(error)
    assert answer is not None
    assert answer.code is not grpc.StatusCode.INTERNAL
    assert answer_of(ValueError("x")) is None
    assert answer_of(PersysError("x")) is None


@pytest.mark.parametrize("method", ["GetWorkload", "WatchEvents"])
@pytest.mark.asyncio
async def test_bytes_that_are_no_message_are_bad_input(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Garbage of a client is its fault: INVALID_ARGUMENT and no traceback in the log."""
    path = next(name for name in METHODS if name.endswith(f"/{method}"))
    async with loopback() as at:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _sent_raw(at.channel, path, b"\xff\xff\xff", stream=method == "WatchEvents")
        assert bugs(at) == 0
        assert at.served() == {(method, "InvalidArgument"): 1}
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "no message of this type" in str(caught.value.details())
    # grpcio may still report to asyncio's log about the closed loop of an earlier test.
    ours = [record for record in caplog.records if record.name != "asyncio"]
    assert [record for record in ours if record.exc_info] == []


async def _sent_raw(channel: grpc.aio.Channel, path: str, raw: bytes, *, stream: bool) -> None:
    if stream:
        await channel.unary_stream(path, bytes, bytes)(raw).read()
    else:
        await channel.unary_unary(path, bytes, bytes)(raw)
