from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from persys_core.sim.agent_settings import Latency
from persys_core.sim.clock import VirtualClock
from persys_core.sim.faults import LinkFaults, Network, NoAnswerError
from persys_core.sim.rng import stream
from persys_core.testing.virtual import virtual_time

TIMEOUT = timedelta(seconds=5)
EXACT = LinkFaults(latency=Latency.of(0.1))


class Counted:
    """Work on the other side that counts how often it was done."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> str:
        self.count += 1
        return "done"


@virtual_time()
async def test_a_call_takes_two_ways(clock: VirtualClock) -> None:
    """Request and reply have the link's latency each."""
    work = Counted()
    assert await Network(1, EXACT).call("n1", work, TIMEOUT) == "done"
    assert clock.monotonic() == pytest.approx(0.2)


@virtual_time()
async def test_a_lost_request_is_never_carried_out(clock: VirtualClock) -> None:
    """Nothing happens, and the caller waits out its deadline."""
    work, network = Counted(), Network(1, LinkFaults(lost_request=1.0))
    with pytest.raises(NoAnswerError) as caught:
        await network.call("n1", work, TIMEOUT)
    await clock.sleep(timedelta(hours=1))
    assert caught.value.deadline_exceeded
    assert work.count == 0


@virtual_time()
async def test_a_lost_reply_looks_the_same_but_was_carried_out(clock: VirtualClock) -> None:
    """The caller cannot tell it from a lost request."""
    work, network = Counted(), Network(1, LinkFaults(lost_reply=1.0))
    with pytest.raises(NoAnswerError) as caught:
        await network.call("n1", work, TIMEOUT)
    assert caught.value.deadline_exceeded
    assert work.count == 1
    assert clock.monotonic() == 5.0


@virtual_time()
async def test_a_duplicate_arrives_later(clock: VirtualClock) -> None:
    """The same request is carried out a second time, and its answer goes nowhere."""
    faults = LinkFaults(duplicate=1.0, duplicate_after=Latency.of(20))
    work, network = Counted(), Network(1, faults)
    await network.call("n1", work, TIMEOUT)
    assert work.count == 1
    await clock.sleep(timedelta(seconds=30))
    assert work.count == 2


@virtual_time()
async def test_a_link_can_be_cut_in_one_direction(clock: VirtualClock) -> None:
    """Cut towards the node nothing arrives; cut from the node only the answer is lost."""
    work, network = Counted(), Network(1)
    network.cut("n1", to_node=True, from_node=False)
    with pytest.raises(NoAnswerError):
        await network.call("n1", work, TIMEOUT)
    assert work.count == 0
    network.cut("n1", to_node=False, from_node=True)
    with pytest.raises(NoAnswerError):
        await network.call("n1", work, TIMEOUT)
    assert work.count == 1
    network.cut("n1", to_node=False, from_node=False)
    assert await network.call("n1", work, TIMEOUT) == "done"


@virtual_time()
async def test_cuts_hold_for_calls_from_the_node_as_well(clock: VirtualClock) -> None:
    """A node whose outgoing side is cut cannot send heartbeats."""
    work, network = Counted(), Network(1)
    network.cut("n1", to_node=False, from_node=True)
    with pytest.raises(NoAnswerError):
        await network.call("n1", work, TIMEOUT, to_node=False)
    assert work.count == 0


@virtual_time()
async def test_a_paused_node_carries_out_what_came_in_when_it_goes_on(clock: VirtualClock) -> None:
    """The caller is long gone; the call still has its effect."""
    work, network = Counted(), Network(1)
    network.pause("n1")
    with pytest.raises(NoAnswerError):
        await network.call("n1", work, TIMEOUT)
    assert work.count == 0
    network.resume("n1")
    await clock.sleep(timedelta(0))
    assert work.count == 1


@virtual_time()
async def test_a_node_that_is_down_refuses_at_once(clock: VirtualClock) -> None:
    """A refused connection is not a passed deadline."""
    network = Network(1)
    network.take_down("n1")
    with pytest.raises(NoAnswerError) as caught:
        await network.call("n1", Counted(), TIMEOUT)
    assert not caught.value.deadline_exceeded
    assert clock.monotonic() < 1


@virtual_time()
async def test_a_node_that_was_paused_and_went_down_comes_back_awake(clock: VirtualClock) -> None:
    """A restart ends a pause, and what had come in before it is gone."""
    work, network = Counted(), Network(1)
    network.pause("n1")
    with pytest.raises(NoAnswerError):
        await network.call("n1", work, TIMEOUT)
    network.take_down("n1")
    network.bring_up("n1")
    assert await network.call("n1", work, TIMEOUT) == "done"
    assert work.count == 1


@virtual_time()
async def test_a_call_outlives_its_cancelled_caller(clock: VirtualClock) -> None:
    """Cancelling stops the waiting, not the request that is on its way."""
    work = Counted()
    task = asyncio.create_task(Network(1, EXACT).call("n1", work, TIMEOUT))
    await clock.sleep(timedelta(seconds=0.05))
    task.cancel()
    await clock.sleep(timedelta(seconds=1))
    assert work.count == 1


@virtual_time()
async def test_errors_of_the_other_side_reach_the_caller(clock: VirtualClock) -> None:
    """What the work raises is raised in the caller."""

    async def work() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await Network(1).call("n1", work, TIMEOUT)


def test_streams_of_chance_are_independent() -> None:
    """A stream depends on seed and names only, and names do not run into each other."""
    assert stream(1, "a", "b").random() == stream(1, "a", "b").random()
    values = {stream(*key).random() for key in ((1, "a", "b"), (1, "ab"), (2, "a", "b"), (1, "a"))}
    assert len(values) == 4
