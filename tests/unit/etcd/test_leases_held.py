"""How long a lead or a registration on etcd is held, whatever a renewal meets (L01, L03)."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
import pytest

from persys_adapters.etcd.client.errors import LeaseLostError, error_of_status
from persys_adapters.etcd.membership import EtcdMembership
from persys_core.model.replica import ReplicaRecord
from persys_core.ports.membership import Leadership, RegistrationLostError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.etcd.fake_leases import FakeLeases

TTL = timedelta(seconds=15)
HANG = timedelta(seconds=60)
MOMENT = timedelta(milliseconds=100)
COUPLE_OF_SECONDS = 2.0
_RECORD = ReplicaRecord("one", datetime(2026, 1, 1, tzinfo=UTC))
_TEXTS = ("", "never seen before", "etcdserver: no leader")
FAILURES: list[Exception] = [
    *(
        error_of_status(code, text)
        for code, text in itertools.product(grpc.StatusCode, _TEXTS)
        if code is not grpc.StatusCode.OK
    ),
    OSError("network is unreachable"),
    ConnectionResetError(),
    TimeoutError(),
    RuntimeError("of the client core"),
    ValueError("a bug"),
    grpc.aio.UsageError("Channel is closed."),
]


async def held(fake: FakeLeases) -> tuple[EtcdMembership, Leadership]:
    """A replica that is registered; what holds of its lease holds of a leader's."""
    membership = EtcdMembership(fake.client, fake.clock, "one", ttl=TTL)
    return membership, await membership.register(_RECORD)


@virtual_time()
async def test_a_renewal_that_hangs(clock: VirtualClock) -> None:
    """With renewals that hang for a minute the loss is told within ten seconds of the first of
    them, and before etcd lets the lease go (L01)."""
    fake = FakeLeases(clock)
    membership, leadership = await held(fake)
    await clock.sleep(TTL * 2 + MOMENT)
    sent_at, ends_at = fake.sent_at[-1], fake.ends_at[1]
    fake.trouble = lambda: clock.sleep(HANG)
    await membership.lost(leadership)
    assert not membership.is_valid(leadership)
    assert clock.monotonic() == pytest.approx(sent_at + TTL.total_seconds(), abs=0.01)
    assert clock.monotonic() < ends_at
    first_hung = next(sent for sent in fake.sent_at if sent > sent_at)
    assert clock.monotonic() <= first_hung + 10.0 + 0.01


@virtual_time()
async def test_a_renewal_has_a_third_of_the_lease(clock: VirtualClock) -> None:
    """Every renewal is given less than a third of the lease, and one that does not keep to that
    is left behind, so that another one may still do (L01)."""
    fake = FakeLeases(clock)
    membership, leadership = await held(fake)
    await clock.sleep(TTL / 3 - MOMENT)
    fake.trouble = lambda: clock.sleep(HANG)
    await clock.sleep(TTL / 2)
    fake.trouble = lambda: clock.sleep(timedelta())
    await clock.sleep(TTL * 4)
    assert membership.is_valid(leadership)
    assert max(fake.timeouts) < TTL.total_seconds() / 3


@virtual_time()
async def test_a_late_answer_revives_nothing(clock: VirtualClock) -> None:
    """What was lost once is not held again, and its lease is ended for those who wait for it."""
    fake = FakeLeases(clock)
    membership, leadership = await held(fake)
    fake.trouble = lambda: clock.sleep(TTL * 0.29)
    fake.ttl[1] = 6
    await membership.lost(leadership)
    fake.trouble = lambda: clock.sleep(timedelta())
    await clock.sleep(TTL)
    assert not membership.is_valid(leadership)
    assert fake.ends_at == {}
    with pytest.raises(RegistrationLostError):
        await membership.acknowledge(leadership, 1)


@pytest.mark.parametrize("failure", FAILURES, ids=repr)
def test_no_failure_ends_it_early(failure: Exception) -> None:
    """Whatever a renewal raises, it is tried again: it is held over an outage that is shorter than
    the lease, and until the deadline in one that is longer (L03)."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise failure

    @virtual_time()
    async def run(clock: VirtualClock) -> None:
        fake = FakeLeases(clock)
        membership, leadership = await held(fake)
        well = fake.trouble
        fake.trouble = fail
        await clock.sleep(TTL * 0.9)
        fake.trouble = well
        await clock.sleep(TTL * 3)
        assert membership.is_valid(leadership)
        deadline = fake.sent_at[-1] + TTL.total_seconds()
        fake.trouble = fail
        await membership.lost(leadership)
        assert clock.monotonic() == pytest.approx(deadline, abs=0.01)
        again = await membership.register(_RECORD)
        assert membership.is_valid(again)

    run()


@virtual_time()
async def test_a_lease_that_is_gone_ends_it(clock: VirtualClock) -> None:
    """Only etcd's word that there is no such lease ends it before the deadline."""
    fake = FakeLeases(clock)
    membership, leadership = await held(fake)

    async def gone() -> None:
        await clock.sleep(timedelta())
        raise LeaseLostError("lease 1 is gone")

    fake.trouble = gone
    await membership.lost(leadership)
    assert clock.monotonic() < TTL.total_seconds() / 2


@virtual_time()
async def test_a_key_that_is_gone_ends_it(clock: VirtualClock) -> None:
    """A key that somebody removed holds nothing any more; one that cannot be read may stand."""
    fake = FakeLeases(clock)
    membership, leadership = await held(fake)

    async def unreadable() -> None:
        await clock.sleep(HANG)

    fake.trouble_reading = unreadable
    fake.key_is_gone = True
    await clock.sleep(TTL * 3)
    assert membership.is_valid(leadership)
    fake.trouble_reading = fake.trouble
    await clock.sleep(TTL / 2)
    assert not membership.is_valid(leadership)


@virtual_time()
async def test_giving_up_does_not_wait_for_etcd(clock: VirtualClock) -> None:
    """With an etcd that answers nothing, resigning takes a couple of seconds, and so does the end
    of a replica that holds several leases."""
    fake = FakeLeases(clock)
    membership, first = await held(fake)
    for _ in range(2):
        await membership.register(_RECORD)
    fake.trouble_ending = fake.trouble = lambda: clock.sleep(HANG)
    began = clock.monotonic()
    await membership.resign(first)
    assert clock.monotonic() - began <= COUPLE_OF_SECONDS
    began = clock.monotonic()
    await membership.aclose()
    assert clock.monotonic() - began <= COUPLE_OF_SECONDS


@pytest.mark.parametrize("failure", FAILURES[-6:], ids=repr)
def test_no_failure_of_the_end_escapes(failure: Exception) -> None:
    """A lease that cannot be ended runs out by itself."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise failure

    @virtual_time()
    async def run(clock: VirtualClock) -> None:
        fake = FakeLeases(clock)
        membership, leadership = await held(fake)
        fake.trouble_ending = fail
        await membership.resign(leadership)
        assert not membership.is_valid(leadership)

    run()
