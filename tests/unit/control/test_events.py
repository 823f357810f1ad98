"""Events mean what their names say."""

from collections import Counter
from datetime import timedelta

import pytest

from persys_core.control.events import EventPublisher
from persys_core.memory.event_log import MemoryEventLog
from persys_core.model.event import Event, EventType
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


@pytest.mark.slow
@virtual_time()
async def test_a_storm_of_many_objects_is_one_event_a_minute_each(clock: VirtualClock) -> None:
    """V02: 15,000 workloads that fit nowhere, tried every 20 s, give one event a minute for each of
    them, with the count of those held back; what is remembered for it is bounded."""
    told: list[Event] = []
    log = MemoryEventLog(10, clock)
    log.on_append(told.append)
    publisher = EventPublisher(log, clock)
    for _ in range(9):
        for number in range(15_000):
            publisher.publish(
                EventType.WORKLOAD_UNSCHEDULABLE,
                workload_id=f"w{number}",
                reason=f"0/1000 nodes: 700 cpu, {number} label disk=ssd " + "x" * 2000,
                code="cpu",
            )
        await clock.sleep(timedelta(seconds=20))
    assert set(Counter(event.workload_id for event in told).values()) == {3}
    assert {event.details.get("count") for event in told} == {None, "3"}
    assert all(len(event.reason.encode()) <= 1024 for event in told)
