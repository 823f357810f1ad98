"""What was measured of a workload does not outlive it."""

from persys_core.control.usage_ends import end_usage_with_work
from persys_core.control.view import ClusterView
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.usage import WorkloadUsage
from persys_core.ports.cluster_store import Change, Key, Versioned
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
