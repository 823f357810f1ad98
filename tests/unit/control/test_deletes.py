"""A delete always ends, and nothing is started again before it has."""

from datetime import timedelta
from typing import cast

import pytest

from persys_core.control.config import SchedulerConfig
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError
from persys_core.model.node import Node
from persys_core.model.resources import Resources
from persys_core.modes.machine import ModeEvent
from persys_core.ports.agents import Accepted, Agents, DeleteOutcome, DeleteRequest, Refused
from persys_core.ports.cluster_store import Commit, Delete, Expectation, Key, Kind
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import Driver, container, machine, running_cluster

pytestmark = pytest.mark.slow


async def _allocated(driver: Driver, node_id: str = "n1") -> Resources:
    view, _ = await driver.cluster.api().queries.get_node(node_id)
    return view.allocated


async def _delete(driver: Driver, workload_id: str, *, force: bool = False) -> str:
    answer = await driver.cluster.api().admission.delete_workload(workload_id, force=force)
    return answer.outcome


@virtual_time()
async def test_delete_is_confirmed_by_the_agent(clock: VirtualClock) -> None:
    """The records stay until the agent says that it does not have the workload."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        assert await _delete(driver, "w") == "Deleting"
        assert await driver.status("w") == "Deleting"
        with pytest.raises(RefusedError, match="being deleted"):
            await driver.apply("w")
        await driver.wait(seconds=20)
        with pytest.raises(NotFoundError):
            await driver.view("w")
        assert driver.calls("delete", "w") == 1
        assert driver.cluster.machines.model("n1").running(clock.now()) == {}
        assert await _allocated(driver) == Resources()


@virtual_time()
async def test_quick_lists_do_not_put_a_delete_off(clock: VirtualClock) -> None:
    """Lists that come faster than questions are asked do not stand for the agent's answer."""
    config = SchedulerConfig(reconcile_interval=timedelta(seconds=0.2))
    async with running_cluster(clock, machine("n1"), config=config) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        await _delete(driver, "w")
        await driver.wait(seconds=20)
        with pytest.raises(NotFoundError):
            await driver.view("w")


class DeletesNothing:
    """Agents that give ``outcome`` for every delete and do nothing, until they are mended."""

    outcome: DeleteOutcome | None = None

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    async def delete(self, node: Node, request: DeleteRequest, timeout: timedelta) -> DeleteOutcome:
        """Answer, or pass on."""
        return DeletesNothing.outcome or await self._agents.delete(node, request, timeout)

    def __getattr__(self, name: str) -> object:
        return getattr(self._agents, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "outcome",
    [Refused("device or resource busy"), Accepted()],
    ids=["refused", "accepted-and-not-done"],
)
@virtual_time()
async def test_a_delete_that_is_not_done_is_not_over(
    clock: VirtualClock, outcome: DeleteOutcome
) -> None:
    """Defect A6: an agent that says no, or yes and then does nothing, leaves records and charge
    as they are for as long as it takes; once it does delete, all is gone."""
    DeletesNothing.outcome = outcome
    async with running_cluster(
        clock, machine("n1"), wrap_agents=lambda agents: cast(Agents, DeletesNothing(agents))
    ) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        await _delete(driver, "w")
        await driver.wait(hours=1)
        assert await driver.status("w") == "Deleting"
        assert await driver.node_of("w") == "n1"
        assert (await _allocated(driver)).cpu_millicores == 1000
        DeletesNothing.outcome = None
        await driver.wait(minutes=2)
        with pytest.raises(NotFoundError):
            await driver.view("w")
        assert await _allocated(driver) == Resources()


@virtual_time()
async def test_deleting_stays_deleting_whatever_is_reported(clock: VirtualClock) -> None:
    """Defect B5: beats that say Running do not bring back what is being deleted."""
    DeletesNothing.outcome = Refused("busy")
    async with running_cluster(
        clock, machine("n1"), wrap_agents=lambda agents: cast(Agents, DeletesNothing(agents))
    ) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        await _delete(driver, "w")
        for _ in range(12):
            await driver.wait(seconds=5)
            assert await driver.status("w") == "Deleting"


@virtual_time()
async def test_delete_ends_where_the_record_of_the_node_is_gone(clock: VirtualClock) -> None:
    """Defect C2: a node whose record another writer removes in the middle holds up no delete."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        driver.cluster.machines.network.cut("n1")
        await _delete(driver, "w")
        await driver.wait(seconds=5)
        assert await driver.status("w") == "Deleting"
        _lose_record(driver, "n1")
        await driver.wait(seconds=20)
        with pytest.raises(NotFoundError):
            await driver.view("w")
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


def _lose_record(driver: Driver, node_id: str) -> None:
    """Remove a node's record past the scheduler."""
    backend = driver.cluster.backend
    stored = backend.read(Key.node(node_id))
    assert stored is not None
    expected = Expectation(Key.node(node_id), revision=stored.revision)
    backend.apply(Commit((expected,), (Delete(Key.node(node_id)),), "another writer"))


@virtual_time()
async def test_delete_on_a_dead_node_leaves_a_tombstone(clock: VirtualClock) -> None:
    """On a dead node a delete ends at once, its share stays charged there, the id may be used
    again elsewhere only, and the returning node is told exactly once."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container(cpu=3000))
        await driver.wait(seconds=20)
        driver.cluster.machines.network.cut("n1")
        await driver.wait(minutes=1)
        await _delete(driver, "w")
        await driver.wait(seconds=5)
        with pytest.raises(NotFoundError):
            await driver.view("w")
        assert list(driver.cluster.api().view.all(Kind.TOMBSTONE)) == ["n1/w"]
        assert (await driver.cluster.api().nodes.progress("n1")).owed == ("w",)
        [told] = await driver.events("WorkloadDeleted")
        assert (told.node_id, told.details["outcome"]) == ("n1", "Tombstoned")
        assert (await _allocated(driver)).cpu_millicores == 3000
        again = await driver.apply("w", container(cpu=100))
        assert again.explanation is not None
        driver.cluster.machines.network.cut("n1", to_node=False, from_node=False)
        await driver.wait(minutes=2)
        assert driver.calls("delete", "w") == 1
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)
        assert (await driver.cluster.api().nodes.progress("n1")).owed == ()
        assert await driver.status("w") == "Running"
        assert (await _allocated(driver)).cpu_millicores == 100


@virtual_time()
async def test_force_drops_the_tombstone(clock: VirtualClock) -> None:
    """Force drops what the dead node owes and frees its share."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container(cpu=3000))
        await driver.wait(seconds=20)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        await _delete(driver, "w")
        await driver.wait(seconds=5)
        with pytest.raises(NotFoundError):
            await _delete(driver, "w")
        assert await _delete(driver, "w", force=True) == "Deleted"
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)
        assert await _allocated(driver) == Resources()


@virtual_time()
async def test_force_on_a_node_that_answers_is_still_owed(clock: VirtualClock) -> None:
    """Force removes the records at once; a node that answers owes the delete and keeps the charge
    until it is done, so nothing runs on unknown and uncharged."""
    async with running_cluster(clock, machine("n1", cpu=1000)) as driver:
        await driver.apply("w", container(cpu=1000))
        await driver.wait(seconds=20)
        assert await _delete(driver, "w", force=True) == "Tombstoned"
        with pytest.raises(NotFoundError):
            await driver.view("w")
        assert (await driver.apply("next", container(cpu=1000))).node_id == ""
        await driver.wait(seconds=30)
        assert driver.calls("delete", "w") == 1
        assert list(driver.cluster.machines.model("n1").running(clock.now())) == ["next"]


@virtual_time()
async def test_second_force_drops_what_is_owed(clock: VirtualClock) -> None:
    """An agent that never confirms holds nothing up for ever: a second force gives it up."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        driver.cluster.machines.pause("n1")
        assert await _delete(driver, "w", force=True) == "Tombstoned"
        assert await _delete(driver, "w", force=True) == "Deleted"
        assert not driver.cluster.api().view.all(Kind.TOMBSTONE)


@virtual_time()
async def test_pending_workload_is_deleted_without_any_agent(clock: VirtualClock) -> None:
    """What no node has is simply removed."""
    async with running_cluster(clock) as driver:
        await driver.apply("w")
        assert await _delete(driver, "w") == "Deleted"
        with pytest.raises(NotFoundError):
            await _delete(driver, "w")


@virtual_time()
async def test_delete_during_a_slow_apply_never_runs_in_reverse(clock: VirtualClock) -> None:
    """Decisions §2.4: an agent that runs an apply and a delete in any order is sent the delete
    only after the apply has ended, and nothing is left running."""
    from persys_core.sim.agent_settings import existing_agent

    async with running_cluster(clock, existing_agent("n1")) as driver:
        await driver.apply("w", container("slow"))
        await driver.wait(seconds=5)
        await _delete(driver, "w")
        await driver.wait(seconds=30)
        assert driver.calls("delete", "w") == 0
        await driver.wait(minutes=10)
        assert driver.calls("delete", "w") == 1
        assert driver.cluster.machines.model("n1").running(clock.now()) == {}
        with pytest.raises(NotFoundError):
            await driver.view("w")


@virtual_time()
async def test_apply_again_after_delete_runs_anew(clock: VirtualClock) -> None:
    """The same id may be used again once it is gone; it is a new life with a new uid."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        uid = (await driver.view("w")).workload.uid
        await _delete(driver, "w")
        await driver.wait(seconds=20)
        await driver.apply("w")
        await driver.wait(seconds=20)
        assert await driver.status("w") == "Running"
        assert (await driver.view("w")).workload.uid != uid


@virtual_time()
async def test_frozen_refuses_mutations_and_serves_reads(clock: VirtualClock) -> None:
    """Degraded: mutations are refused with the reason, registration is answered accepted=false,
    a heartbeat acknowledged, reads are served."""
    from persys_core.control.requests import Heartbeat
    from tests.builders import registration

    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=20)
        scheduler = driver.cluster.api()
        scheduler.modes.report(ModeEvent.OPERATION_EXHAUSTED, "no leader")
        with pytest.raises(FrozenError, match="no leader"):
            await driver.apply("x")
        with pytest.raises(FrozenError):
            await _delete(driver, "w")
        answer = await scheduler.admission.register_node(registration("n9"))
        assert (answer.accepted, answer.reason) == (False, "scheduler degraded/recovery mode")
        beat = await scheduler.admission.heartbeat(Heartbeat("n1"))
        assert (beat.acknowledged, beat.drain_node) == (True, False)
        assert await driver.status("w") == "Running"
        await driver.wait(seconds=10)
        assert not scheduler.modes.is_frozen
