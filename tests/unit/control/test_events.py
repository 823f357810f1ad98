"""Events mean what their names say."""

from persys_core.model.states import DesiredState
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster


async def _kinds(driver: Driver) -> list[str]:
    return [event.type.value for event in await driver.events(workload_id="w")]


@virtual_time()
async def test_each_thing_that_happens_has_its_own_word(clock: VirtualClock) -> None:
    """Defect F11: WorkloadScheduled is told of a placement alone, Rescheduled of a move off a lost
    node alone; creation, update, stop and deletion have words of their own."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w", container("nginx:1"))
        await driver.wait(seconds=20)
        told = ["WorkloadCreated", "WorkloadScheduled", "WorkloadRunning"]
        assert await _kinds(driver) == told
        await driver.apply("w", container("nginx:2"))
        await driver.wait(seconds=30)
        told += ["WorkloadUpdated", "WorkloadRunning"]
        assert await _kinds(driver) == told
        await driver.desire("w", DesiredState.STOPPED)
        await driver.wait(seconds=30)
        told += ["WorkloadUpdated", "WorkloadStopped"]
        assert await _kinds(driver) == told
        await driver.desire("w", DesiredState.RUNNING)
        await driver.wait(seconds=60)
        told += ["WorkloadUpdated", "WorkloadRunning"]
        assert await _kinds(driver) == told
        driver.cluster.machines.kill(await driver.node_of("w"))
        await driver.wait(minutes=5)
        told += ["Rescheduled", "WorkloadRunning"]
        assert await _kinds(driver) == told
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        assert await _kinds(driver) == [*told, "WorkloadDeleted"]
