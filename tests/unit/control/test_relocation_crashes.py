"""A relocation replaces the assignment in one commit, wherever the replica that does it falls."""

import asyncio

import pytest

from persys_core.control.ledger_audit import ledger_differences
from persys_core.control.view import ClusterView
from persys_core.ports.cluster_store import Commit, Key, Kind
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow

STEPS = 9
"""More commits than the move, the start and the end of the old copy take together."""


class _Crash:
    """Crashes whoever acts right after the commit number ``step`` about ``w``, counted from now;
    judges the records at every commit."""

    def __init__(self, driver: Driver, step: int) -> None:
        self._driver = driver
        self._left = step
        self._tasks: list[asyncio.Task[None]] = []
        self.crashed = False
        driver.cluster.backend.on_commit(self._committed)

    def _committed(self, commit: Commit, revision: int) -> None:
        view = ClusterView()
        view.load(self._driver.cluster.backend.snapshot())
        assert not ledger_differences(view)
        assert view.assignment("w") is not None
        if not any(write.key.id.endswith("w") for write in commit.writes):
            return
        self._left -= 1
        if self._left == 0:
            acting = [each for each in self._driver.cluster.replicas if each.scheduler.is_leader]
            crash = self._driver.cluster.crash(acting[0])
            self._tasks.append(asyncio.get_running_loop().create_task(crash))
            self.crashed = True


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@virtual_time()
async def test_a_crash_between_any_two_steps_leaves_one_assignment(
    clock: VirtualClock, step: int
) -> None:
    """At every revision the workload has one node, and every node is charged for what stands there;
    in the end one node is."""
    async with running_cluster(clock, machine("n1"), replicas=3) as driver:
        await driver.apply("w", container(cpu=1000))
        await driver.wait(seconds=20)
        assert await driver.node_of("w") == "n1"
        driver.cluster.add_machine(machine("n2"))
        await driver.wait(seconds=10)
        crash = _Crash(driver, step)
        driver.cluster.machines.kill_agent("n1")
        await driver.wait(minutes=4)
        assert (await driver.node_of("w"), await driver.status("w")) == ("n2", "Running")
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=2)
        assert (await driver.node_of("w"), await driver.status("w")) == ("n2", "Running")
        view = driver.cluster.api().view
        assert not view.all(Kind.TOMBSTONE)
        charged = {node: stored.value for node, stored in view.all(Kind.ALLOCATION).items()}
        assert [node for node, each in charged.items() if getattr(each, "workload_count", 0)] == [
            "n2"
        ]
        assert driver.cluster.backend.read(Key.assignment("w")) is not None
        assert crash.crashed or step > 4
