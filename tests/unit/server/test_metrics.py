"""The metrics: names and labels of the reference, and no series without end (M02)."""

from __future__ import annotations

import platform
import random
import re
import string

import pytest
from attrs import evolve

from persys_core.control.answers import ClusterTotals
from persys_core.model.replica import HaMode
from persys_core.model.resources import Resources
from persys_core.model.states import NodeStatus, OperatingMode
from persys_core.model.usage import WorkloadUsage
from persys_core.ports.observer import Metric
from persys_core.reconcile.actions import Action
from persys_server.observability.gauges import ReplicaGauges, ReplicaReadings
from persys_server.observability.labels import (
    AGENT_RPCS,
    CODES,
    DESIRED_STATES,
    METHODS,
    NODE_STATUSES,
    WORKLOAD_STATUSES,
    WRITE_CATEGORIES,
    OpenLabel,
)
from persys_server.observability.metrics import BUCKETS, Metrics, PrometheusObserver
from tests.unit.server.fakes import NOW, standing, summary

P = "persys_scheduler_"
# Reference page 15: family -> labels.
REFERENCE = {
    "grpc_server_requests": {"method", "code"},
    "grpc_server_request_duration_seconds": {"method", "code"},
    "agent_rpc_requests": {"rpc", "code"},
    "agent_rpc_duration_seconds": {"rpc", "code"},
    "reconciliation_results": {"action", "success"},
    "reconciliation_cycle_duration_seconds": set(),
    "reconciliation_cycles": {"result"},
    "nodes_status": {"status"},
    "workloads_status": {"status"},
    "workloads_desired_state": {"desired_state"},
    "state_store_writes": {"category"},
}
# The one place where ids are labels (decisions, 1.4).
USAGE = {f"{P}workload_{name}" for name in (
    "cpu_percent", "memory_bytes", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes",
    "net_tx_bytes")}  # fmt: skip


def usage(workload_id: str) -> WorkloadUsage:
    return WorkloadUsage(workload_id, "n1", "container", 1.5, 2, 3, 4, 5, 6, NOW, "docker.stats")


class Page:
    """A registry with everything registered, filled a little."""

    def __init__(self, usage_series_max: int = 1000) -> None:
        self.metrics = Metrics()
        self.observer = PrometheusObserver(self.metrics)
        self.gauges = ReplicaGauges(usage_series_max)
        self.metrics.registry.register(self.gauges)

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
        }

    def labels_by_family(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for family in self.metrics.registry.collect():
            if family.name.startswith(P):
                names = {name for sample in family.samples for name in sample.labels}
                found[family.name] = names - {"le"}
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.samples()[P + name, tuple(sorted(labels.items()))]


def filled() -> Page:
    page = Page()
    page.metrics.request_served(sorted(METHODS)[0], 0, 0.1)
    for metric in Metric:
        page.observer.increment(metric, {"action": "Delete", "rpc": "ListWorkloads"})
        page.observer.record(metric, 0.1, {"rpc": "ListWorkloads", "result": "accepted"})
    page.gauges.readings = ReplicaReadings(
        summary(), [usage("w1")], {"reconciler": 1.0}, 0.1, view_age_seconds=2.0
    )
    return page


def test_the_families_of_the_reference_are_there() -> None:
    """Names and labels are exactly those of the reference."""
    found = filled().labels_by_family()
    assert {name: found[P + name] for name in REFERENCE} == REFERENCE


def test_no_label_is_open() -> None:
    """M02, as a lint over the registry: no label is an id, a message or an error text."""
    forbidden = (
        "id",
        "name",
        "message",
        "error",
        "reason_text",
        "peer",
        "path",
        "node",
        "workload",
    )
    for family, labels in filled().labels_by_family().items():
        if family not in USAGE:
            assert not [label for label in labels if label.endswith(forbidden)], family


# What every label of every family may hold. ``None``: plain words, at most 24, `other` and `grpc`.
ALLOWED: dict[str, frozenset[str] | None] = {
    "method": METHODS | {"other"},
    "code": frozenset(CODES) | {"other"},
    "rpc": AGENT_RPCS | {"other"},
    "action": frozenset(map(str, Action)) | {"other"},
    "success": frozenset({"true", "false", "other"}),
    "status": NODE_STATUSES | WORKLOAD_STATUSES | {"other"},
    "desired_state": DESIRED_STATES | {"other"},
    "category": WRITE_CATEGORIES | {"other"},
    "kind": frozenset({"allocatable", "allocated", "used"}),
    "mode": frozenset(map(str, (*OperatingMode, *HaMode))) | {"other"},
    "le": frozenset({*map(str, BUCKETS), "+Inf"}),
    # Of the collectors that come with the library.
    "generation": frozenset("012"),
    "implementation": frozenset({platform.python_implementation()}),
    "version": frozenset({platform.python_version()}),
    "major": frozenset({platform.python_version_tuple()[0]}),
    "minor": frozenset({platform.python_version_tuple()[1]}),
    "patchlevel": frozenset({platform.python_version_tuple()[2]}),
    "result": None,
    "reason": None,
    "where": None,
    "loop": None,
}


def test_every_label_of_every_family_is_bounded() -> None:
    """M02, over the whole registry after odd input: a label has a closed set, or few plain words.
    A new label, or a value outside of its set, fails here until somebody says what it may hold."""
    page = filled()
    odd = {name: f"odd {name}/7f3" for name in ALLOWED}
    for number in range(100):
        words = odd | dict.fromkeys(("result", "reason", "where"), "w" + "x" * (number % 40))
        for metric in Metric:
            page.observer.increment(metric, words)
            page.observer.record(metric, 0.1, words)
    ages = {f"loop{'x' * number}": 1.0 for number in range(40)}
    page.gauges.readings = evolve(page.gauges.readings, loop_ages=ages)
    values: dict[str, set[str]] = {}
    for (name, labels), _ in page.samples().items():
        if name not in USAGE:
            for label, value in labels:
                values.setdefault(label, set()).add(value)
    assert values.keys() <= ALLOWED.keys()
    for label, found in values.items():
        known = ALLOWED[label]
        if known is None:
            assert len(found) <= 26, label
            assert all(re.fullmatch("[A-Za-z_.]{1,48}", value) for value in found), label
        else:
            assert found <= known, label


def test_the_division_among_replicas_is_shown() -> None:
    """Who is there, for what this replica acts, and what nobody or two replicas act for."""
    page = filled()
    torn = standing(
        ha_mode=HaMode.ACTIVE_ACTIVE, unowned_nodes=4, doubly_owned_nodes=1, foreign_leader="go-1"
    )
    page.gauges.readings = evolve(page.gauges.readings, summary=summary(standing=torn))
    assert page.value("ha_mode", mode="active-active") == 1
    assert page.value("ha_mode", mode="failover") == 0
    assert page.value("replicas") == 2
    assert page.value("nodes_owned") == 2
    assert page.value("nodes_unowned") == 4
    assert page.value("nodes_doubly_owned") == 1
    assert page.value("foreign_leader") == 1


def test_histograms_have_the_reference_buckets() -> None:
    """The buckets are those of the reference, nothing else."""
    assert list(BUCKETS) == [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
    metrics = Metrics()
    PrometheusObserver(metrics).record(Metric.RECONCILE_CYCLE_SECONDS, 0.3, {})
    assert b'duration_seconds_bucket{le="0.5"} 1.0' in metrics.page()[0]
    assert b'duration_seconds_bucket{le="0.25"} 0.0' in metrics.page()[0]


@pytest.mark.slow
def test_random_input_adds_no_series() -> None:
    """M02: after the first hundreds, thousands of ids, methods and texts add no series."""
    page, chance = filled(), random.Random(7)

    def noise() -> str:
        return "".join(chance.choices(string.ascii_letters + string.digits + "-/ ", k=12))

    def feed(times: int) -> int:
        for _ in range(times):
            labels = {
                name: noise()
                for name in ("action", "success", "result", "category", "rpc", "code", "where",
                             "reason", "workload_id")
            }  # fmt: skip
            for metric in Metric:
                page.observer.increment(metric, labels)
                page.observer.record(metric, 0.1, labels)
            page.metrics.request_served(noise(), chance.randrange(17), 0.1)
        return len(page.samples())

    page_size = feed(1000)
    assert feed(2000) == page_size


def test_an_open_label_is_bounded() -> None:
    """Even plain words are taken only up to the bound; digits and blanks never."""
    label = OpenLabel(at_most=2)
    assert [label(word) for word in ("a", "b", "c", "a")] == ["a", "b", "other", "a"]
    assert OpenLabel()("w-17") == OpenLabel()("two words") == OpenLabel()("") == "other"


def test_unknown_methods_share_one_series() -> None:
    """A caller cannot make series by calling names that do not exist."""
    page = Page()
    for name in ("/x.Y/Z", "/persys.control.v1.AgentControl/Nothing"):
        page.metrics.request_served(name, 12, 0.1)
    assert page.value("grpc_server_requests_total", method="other", code="Unimplemented") == 2


def test_agent_results_become_codes() -> None:
    """The core's words for an agent's answer are shown as status codes."""
    page = Page()
    for result in ("answered", "refused", "not_found", "unreachable", "gibberish"):
        page.observer.increment(Metric.AGENT_CALLS, {"rpc": "ApplyWorkload", "result": result})
    for code in ("OK", "FailedPrecondition", "NotFound", "Unavailable", "other"):
        assert page.value("agent_rpc_requests_total", rpc="ApplyWorkload", code=code) == 1


def test_writes_of_workloads_count_as_spec() -> None:
    """The categories are the reference's; kinds of ours come beside them."""
    page = Page()
    page.observer.increment(Metric.STORE_WRITES, {"category": "workload"}, by=3)
    assert page.value("state_store_writes_total", category="spec") == 3
    assert page.value("state_store_writes_total", category="retry") == 0


def test_gauges_follow_the_summary() -> None:
    """F4: a status that nobody has any more is 0, not the last value."""
    page = Page()
    page.gauges.readings = ReplicaReadings(summary(nodes_by_status={NodeStatus.DRAINING: 3}))
    assert page.value("nodes_status", status="draining") == 3
    page.gauges.readings = ReplicaReadings(summary(nodes_by_status={NodeStatus.READY: 3}))
    assert page.value("nodes_status", status="draining") == 0
    assert page.value("nodes_status", status="ready") == 3


def test_preset_statuses_are_there_from_the_start() -> None:
    """The reference's presets are shown as 0, and every status of ours with them."""
    page = Page()
    page.gauges.readings = ReplicaReadings(
        summary(nodes_by_status={}, workloads_by_status={}, workloads_by_desired_state={})
    )
    for status in ("ready", "active", "notready", "unknown"):
        assert page.value("nodes_status", status=status) == 0
    for status in ("pending", "running", "stopped", "failed", "deleted", "updating", "unknown",
                   "scheduled", "retrypending", "deleting"):  # fmt: skip
        assert page.value("workloads_status", status=status) == 0
    for state in ("running", "stopped", "deleted", "unknown"):
        assert page.value("workloads_desired_state", desired_state=state) == 0


def test_the_sums_over_all_nodes_are_shown() -> None:
    """What may be placed, what is charged and what is used, without a label per node."""
    page = Page()
    totals = ClusterTotals(
        Resources.of(cpu_millicores=8000, memory_mb=4096),
        Resources.of(cpu_millicores=3000, memory_mb=1024),
        Resources.of(cpu_millicores=500, memory_mb=256),
    )
    page.gauges.readings = ReplicaReadings(summary(totals=totals))
    for kind, cpu, memory in (
        ("allocatable", 8000, 4096), ("allocated", 3000, 1024), ("used", 500, 256),
    ):  # fmt: skip
        assert page.value("cluster_cpu_millicores", kind=kind) == cpu
        assert page.value("cluster_memory_mb", kind=kind) == memory


def test_what_cannot_be_told_is_left_out() -> None:
    """Without a summary the cluster's gauges are absent, not zero."""
    page = filled()
    page.gauges.readings = ReplicaReadings()
    assert not [name for name, _ in page.samples() if name in (P + "nodes_status", P + "mode")]
    page.gauges.readings = ReplicaReadings(summary(workloads_by_desired_state={}))
    names = {name for name, _ in page.samples()}
    assert P + "workloads_status" in names
    assert P + "workloads_desired_state" not in names


def test_usage_series_are_bounded_and_end_with_the_workload() -> None:
    """At most so many series are shown, the rest is counted; a workload that left is gone."""
    page = Page(usage_series_max=12)
    page.gauges.readings = ReplicaReadings(usages=[usage(f"w{n}") for n in range(5)])
    series = [key for key in page.samples() if key[0] in USAGE]
    assert len(series) == 12
    page.gauges.readings = ReplicaReadings(usages=[usage("w9")])
    assert (
        page.value("workload_memory_bytes", workload_id="w9", node_id="n1", type="container") == 2
    )
    assert page.value("usage_series_dropped_total") >= 18
    page.gauges.readings = ReplicaReadings()
    assert not [key for key in page.samples() if key[0] in USAGE]


def test_the_same_workloads_are_shown_at_every_scrape() -> None:
    """M02: which series are left out does not depend on who reported last."""
    page = Page(usage_series_max=12)
    shown = []
    for order in (("w1", "w2", "w3"), ("w3", "w1", "w2")):
        page.gauges.readings = ReplicaReadings(usages=map(usage, order))
        shown.append({key for key in page.samples() if key[0] in USAGE})
    assert shown[0] == shown[1]


@pytest.mark.parametrize("metric", list(Metric))
def test_the_observer_takes_every_metric(metric: Metric) -> None:
    """No metric of the core makes the observer raise, with labels or without."""
    observer = PrometheusObserver(Metrics())
    observer.increment(metric, {})
    observer.record(metric, -1.0, {})
    observer.increment(metric, {"action": "x", "unexpected": "y"}, by=0)


def test_process_metrics_are_there() -> None:
    """The usual process collector is on the page, and no _created series are."""
    text = Metrics().page()[0].decode()
    assert "process_cpu_seconds_total" in text
    assert "_created" not in text
