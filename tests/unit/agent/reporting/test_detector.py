from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from persys_core.model.states import WorkloadType
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.unit.agent.bench import Bench

CONTAINER = WorkloadType.CONTAINER


@virtual_time()
async def test_a_runtime_that_goes_silent_is_noticed_at_the_next_look(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """Nobody waits for the next regular detection: a listing that is not answered asks at once,
    and so does one that is answered again. Without a look it takes its interval."""
    bench = Bench(clock, tmp_path)
    async with bench.node() as node:
        detector, inventory = node.assembly.detector, node.assembly.works.inventory
        running = asyncio.create_task(detector.run())
        for is_up in (False, True):
            bench.host.is_up = is_up
            await clock.sleep(timedelta(seconds=2))
            assert detector.current.runtimes[CONTAINER].is_available is not is_up
            await inventory.look()
            await clock.sleep(timedelta(seconds=2))
            assert detector.current.runtimes[CONTAINER].is_available is is_up
        bench.host.is_up = False
        await clock.sleep(timedelta(seconds=62))
        assert not detector.current.runtimes[CONTAINER].is_available
        running.cancel()
