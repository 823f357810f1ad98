"""What the user stopped stays stopped."""

from __future__ import annotations

from persys_core.model.states import DesiredState
from persys_core.sim.agent_journal import Happening
from persys_core.sim.agent_settings import existing_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import container, running_cluster


@virtual_time()
async def test_a_stop_in_the_middle_of_a_first_apply_outlives_a_restart(
    clock: VirtualClock,
) -> None:
    """The machine goes down before the stop could be told: nothing runs when it is back, but its
    agent was last told to run the workload, and begins anew. It is told to stop at once, not once
    the workload runs, and so it runs for no longer than a stop takes."""
    async with running_cluster(clock, existing_agent("n1")) as driver:
        await driver.apply("w", container("slow"))
        await driver.wait(seconds=30)
        await driver.desire("w", DesiredState.STOPPED)
        await driver.wait(seconds=10)
        driver.cluster.machines.kill("n1")
        await driver.wait(seconds=20)
        driver.cluster.machines.revive("n1")
        model = driver.cluster.machines.model("n1")
        await driver.wait(seconds=60)
        told = [each for each in model.journal.entries if each.what is Happening.APPLY]
        assert told[-1].detail == DesiredState.STOPPED
        ran = 0
        for _ in range(15 * 60):
            await driver.wait(seconds=1)
            ran += "w" in model.running(clock.now())
        assert ran <= 5
        assert await driver.status("w") == "Stopped"
        assert [row.desired for row in model.rows(clock.now())] == [DesiredState.STOPPED]
