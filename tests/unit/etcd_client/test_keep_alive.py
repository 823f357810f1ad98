"""Keepalives: one stream, deadlines from the sending, another endpoint in time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from persys_adapters.etcd.client import (
    DeadlineError,
    LeaseLostError,
    PermissionDeniedError,
    UnavailableError,
)
from persys_adapters.etcd.client import rpc_pb2 as pb
from tests.unit.etcd_client.fake_etcd import (
    Context,
    FakeEtcd,
    client_of,
    fake_etcd,
    header,
    silence,
)

pytestmark = pytest.mark.slow

QUICK = {"keep_alive_silence": timedelta(seconds=0.2), "call_timeout": timedelta(seconds=2)}


class Lessor:
    """Answers keepalives: each lease has its seconds; the others are gone."""

    def __init__(self, fake: FakeEtcd, ttls: dict[int, int], *, delay: float = 0.0) -> None:
        self.ttls = ttls
        self.delay = delay
        self.ends_after = 10**9
        self.asked: list[int] = []
        fake.streams["Lease/LeaseKeepAlive"] = self._serve

    async def _serve(
        self, requests: AsyncIterator[pb.LeaseKeepAliveRequest], context: Context
    ) -> Any:
        answered = 0
        async for request in requests:
            self.asked.append(request.id)
            if answered >= self.ends_after:
                return
            answered += 1
            await asyncio.sleep(self.delay)
            ttl = self.ttls.get(request.id, 0)
            yield pb.LeaseKeepAliveResponse(header=header(1), id=request.id, ttl=ttl)


@pytest.mark.asyncio
async def test_many_renewals_share_a_stream() -> None:
    """Renewals of many leases, and of one lease twice, go over one stream, each with its answer."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Lessor(fake, {number: 100 + number for number in range(1, 201)})
        before = asyncio.get_running_loop().time()
        wanted = [*range(1, 201), 7, 7]
        deadlines = await asyncio.gather(*map(client.keep_alive, wanted))
        after = asyncio.get_running_loop().time()
    assert fake.count("Lease/LeaseKeepAlive") == 1
    for number, deadline in zip(wanted, deadlines, strict=True):
        assert before <= deadline - 100 - number <= after


@pytest.mark.asyncio
async def test_the_deadline_counts_from_the_sending() -> None:
    """However late the answer is, the deadline is no later than the sending plus the lifetime."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Lessor(fake, {1: 10}, delay=0.3)
        before = asyncio.get_running_loop().time()
        deadline = await client.keep_alive(1)
        after = asyncio.get_running_loop().time()
    assert after - before >= 0.29
    assert deadline <= after - 0.29 + 10


@pytest.mark.asyncio
async def test_a_lost_lease_is_told() -> None:
    """A lifetime of zero is the loss of that lease alone."""
    async with fake_etcd() as fake, client_of(fake) as client:
        Lessor(fake, {1: 10})
        with pytest.raises(LeaseLostError, match="lease 2"):
            await client.keep_alive(2)
        await client.keep_alive(1)


@pytest.mark.asyncio
async def test_a_hung_endpoint_is_left_within_the_lifetime() -> None:
    """A server that takes requests and answers nothing is left after a moment; all renewals are
    answered elsewhere, and counted from when they were sent there."""
    async with fake_etcd() as bad, fake_etcd() as good, client_of(bad, good, **QUICK) as client:
        bad.streams["Lease/LeaseKeepAlive"] = silence
        Lessor(good, dict.fromkeys(range(1, 51), 10))
        before = asyncio.get_running_loop().time()
        deadlines = await asyncio.gather(*map(client.keep_alive, range(1, 51)))
    assert all(deadline >= before + 0.2 + 10 for deadline in deadlines)


@pytest.mark.asyncio
async def test_an_ended_stream_is_opened_again() -> None:
    """A stream that ends with answers due is opened again, and they come."""
    async with fake_etcd() as fake, client_of(fake) as client:
        lessor = Lessor(fake, dict.fromkeys(range(1, 11), 10))
        lessor.ends_after = 4
        await asyncio.gather(*map(client.keep_alive, range(1, 11)))
    assert fake.count("Lease/LeaseKeepAlive") >= 3
    assert set(lessor.asked) == set(range(1, 11))


@pytest.mark.asyncio
async def test_silence_without_a_question_is_no_fault() -> None:
    """A stream on which nothing is asked stays open."""
    async with fake_etcd() as fake, client_of(fake, **QUICK) as client:
        Lessor(fake, {1: 10})
        await client.keep_alive(1)
        await asyncio.sleep(0.5)
        await client.keep_alive(1)
    assert fake.count("Lease/LeaseKeepAlive") == 1


@pytest.mark.asyncio
async def test_a_slow_server_that_speaks_is_not_hung() -> None:
    """With many renewals due, each answer shows that the line lives."""
    async with fake_etcd() as fake, client_of(fake, **QUICK) as client:
        Lessor(fake, dict.fromkeys(range(1, 13), 10), delay=0.05)
        await asyncio.gather(*map(client.keep_alive, range(1, 13)))
    assert fake.count("Lease/LeaseKeepAlive") == 1


@pytest.mark.asyncio
async def test_no_answer_anywhere_is_unavailable_in_time() -> None:
    """A renewal that nobody answers fails within the call timeout and says what was wrong."""
    quick = {**QUICK, "call_timeout": timedelta(seconds=0.5)}
    async with fake_etcd() as fake, client_of(fake, **quick) as client:
        fake.fails("Lease/LeaseKeepAlive", grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
        with pytest.raises(DeadlineError, match="no leader"):
            await client.keep_alive(1)


@pytest.mark.asyncio
async def test_a_renewal_may_have_less_time_than_a_call() -> None:
    """Whoever must know before its lease can run out says how long a renewal may take (L01)."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.streams["Lease/LeaseKeepAlive"] = silence
        began = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineError, match=r"0\.2 s"):
            await client.keep_alive(1, timeout=timedelta(seconds=0.2))
        assert asyncio.get_running_loop().time() - began < 3


@pytest.mark.asyncio
async def test_a_refusal_is_told_to_everyone_who_waits() -> None:
    """What no other endpoint would answer differently is not waited for."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.fails("Lease/LeaseKeepAlive", grpc.StatusCode.PERMISSION_DENIED, "no")
        results = await asyncio.gather(*map(client.keep_alive, range(3)), return_exceptions=True)
    assert [type(each) for each in results] == [PermissionDeniedError] * 3


@pytest.mark.asyncio
async def test_closing_lets_everyone_go() -> None:
    """Renewals under way end as unavailable when the client is closed."""
    async with fake_etcd() as fake, client_of(fake) as client:
        fake.streams["Lease/LeaseKeepAlive"] = silence
        waiting = asyncio.create_task(client.keep_alive(1))
        async with asyncio.timeout(5):
            while not fake.count("Lease/LeaseKeepAlive"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await client.aclose()
        with pytest.raises(UnavailableError, match="closed"):
            await waiting


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, None])
async def test_closing_never_hangs_on_streams_that_end(code: grpc.StatusCode | None) -> None:
    """A cancellation that meets the end of a stream in the same moment is not lost: gRPC shows the
    end alone, and a loop that goes by that alone is never told to stop."""
    quick = {**QUICK, "call_timeout": timedelta(seconds=0.02)}
    async with fake_etcd() as fake, asyncio.timeout(60):
        Lessor(fake, {}).ends_after = 0
        if code is not None:
            fake.fails("Lease/LeaseKeepAlive", code, "never seen before")
        for _ in range(40):
            async with client_of(fake, **quick) as client:
                watching = client.watch(b"a")
                fake.streams["Watch/Watch"] = fake.streams["Lease/LeaseKeepAlive"]
                with pytest.raises(UnavailableError):
                    await client.keep_alive(1)
                await watching.aclose()
