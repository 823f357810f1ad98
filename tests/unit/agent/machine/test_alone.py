"""Work on one workload at a time."""

from __future__ import annotations

import asyncio

import pytest

from persys_agent.runtimes.machine.alone import OneAtATime


@pytest.mark.asyncio
async def test_work_on_one_workload_waits() -> None:
    """Two works on one workload follow each other; those on two go on together."""
    alone, events, gate = OneAtATime(), list[str](), asyncio.Event()

    async def first() -> None:
        events.append("first begins")
        await gate.wait()
        events.append("first ends")

    async def second() -> None:
        events.append("second")

    async def other() -> None:
        events.append("other")
        gate.set()

    await asyncio.gather(
        alone.finish("w", first), alone.finish("w", second), alone.finish("v", other)
    )
    assert events == ["first begins", "other", "first ends", "second"]


@pytest.mark.asyncio
async def test_a_cancelled_caller_leaves_no_half_work() -> None:
    """What has begun ends, and the next work sees it ended."""
    alone, done, begun = OneAtATime(), list[str](), asyncio.Event()

    async def long() -> None:
        begun.set()
        await asyncio.sleep(0)
        done.append("long")
        raise ValueError("nobody waits for this")

    async def next_one() -> list[str]:
        return list(done)

    call = asyncio.create_task(alone.finish("w", long))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await alone.finish("w", next_one) == ["long"]
    await alone.aclose()
