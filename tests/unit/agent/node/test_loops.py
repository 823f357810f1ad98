from __future__ import annotations

import asyncio
from datetime import timedelta

from persys_agent.node.loops import Loops
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time


@virtual_time()
async def test_a_loop_that_fails_goes_on(clock: VirtualClock) -> None:
    """The bug is counted and told while it lasts, and the loop is begun again."""
    loops = Loops(clock)
    began: list[float] = []

    async def loop() -> None:
        began.append(clock.monotonic())
        if len(began) < 3:
            raise LookupError("bug")
        await clock.sleep(timedelta(days=1))

    running = asyncio.create_task(loops.keep("heart", loop))
    await clock.sleep(timedelta(seconds=1))
    assert loops.problem == "the loop heart failed: LookupError"
    await clock.sleep(timedelta(minutes=1))
    assert (loops.errors, loops.problem, len(began)) == (2, "", 3)
    running.cancel()
