"""What was measured does not outlive its workload, and is summed over the nodes."""

from persys_core.control.usage_ends import end_usage_with_work
from persys_core.control.view import ClusterView
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.resources import Resources
from persys_core.model.usage import WorkloadUsage
from persys_core.ports.cluster_store import Change, Key, Versioned
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import machine, running_cluster
from tests.unit.server.fakes import NOW, workload_view


def test_a_replica_that_only_watches_forgets_too() -> None:
    """The series of a workload end on a follower, which saw neither the delete nor its end."""
    view, telemetry = ClusterView(), MemoryTelemetry()
    end_usage_with_work(view, telemetry)
    for number, name in enumerate(("w1", "w2"), start=1):
        record = workload_view(name).workload
        view.apply(number, [Change(Key.workload(name), Versioned(record, number, number))])
        telemetry.record_workload_usage(
            WorkloadUsage(name, "n1", "container", 1.0, 2, 3, 4, 5, 6, NOW, "docker.stats")
        )
    view.apply(3, [Change(Key.workload("w1"), None)])
    assert [usage.workload_id for usage in telemetry.workload_usages()] == ["w2"]


@virtual_time()
async def test_totals_are_the_sums_of_the_nodes(clock: VirtualClock) -> None:
    """What may be placed, is charged and is used, as the views of the nodes say one by one."""
    async with running_cluster(clock, machine("n1"), machine("n2")) as driver:
        await driver.apply("w")
        await driver.wait(seconds=30)
        summary, _ = await driver.cluster.api().queries.summary()
        nodes, _ = await driver.cluster.api().queries.list_nodes()
    assert summary.totals.allocatable == Resources.total(each.node.allocatable for each in nodes)
    assert summary.totals.allocated == Resources.total(each.allocated for each in nodes)
    assert summary.totals.allocated.memory_mb > 0
    measured = [each.usage.used for each in nodes if each.usage]
    assert summary.totals.used == Resources.total(measured)
