"""Gauges that are computed at each scrape, so that none of them can keep an old value (F4).

Decided here: which numbers are shown, and that a number which cannot be told is left out instead
of shown as zero. Where they come from is asked through ``ReplicaReadings``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from operator import attrgetter

from attrs import field, frozen
from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from persys_core.control.answers import ClusterSummary, ClusterTotals
from persys_core.control.standing import Standing
from persys_core.model.replica import HaMode
from persys_core.model.states import OperatingMode
from persys_core.model.usage import WorkloadUsage
from persys_server.observability.labels import (
    DESIRED_STATES,
    NODE_STATUSES,
    WORKLOAD_STATUSES,
    OpenLabel,
    closed,
)
from persys_server.observability.metrics import PREFIX

__all__ = ["ReplicaGauges", "ReplicaReadings"]

_USAGE = {
    "workload_cpu_percent": "cpu_percent",
    "workload_memory_bytes": "memory_bytes",
    "workload_disk_read_bytes": "disk_read_bytes",
    "workload_disk_write_bytes": "disk_write_bytes",
    "workload_net_rx_bytes": "net_rx_bytes",
    "workload_net_tx_bytes": "net_tx_bytes",
}
_SERIES_PER_WORKLOAD = len(_USAGE)
_workload_id = attrgetter("workload_id")
_TYPES = ("container", "compose", "vm", "microvm")


@frozen
class ReplicaReadings:
    """What is true at one moment. ``summary`` is ``None`` where the replica has no view yet."""

    summary: ClusterSummary | None = None
    usages: Iterable[WorkloadUsage] = ()
    loop_ages: Mapping[str, float] = field(factory=dict)
    loop_lag_seconds: float = 0.0
    view_age_seconds: float | None = None


class ReplicaGauges(Collector):
    """Shows the readings that were set last; whoever serves a scrape sets them just before."""

    def __init__(self, usage_series_max: int) -> None:
        self._usage_workloads_max = usage_series_max // _SERIES_PER_WORKLOAD
        self._loop_names = OpenLabel()
        self._dropped = 0
        self.readings = ReplicaReadings()

    def collect(self) -> Iterator[Family]:
        """Every gauge of the readings."""
        readings = self.readings
        if readings.summary is not None:
            yield from _of_cluster(readings.summary)
        yield from self._of_process(readings)
        yield from self._of_usage(readings.usages)

    def describe(self) -> Iterator[Family]:
        """The families without samples, so that registering reads nothing."""
        return iter(())

    def _of_process(self, readings: ReplicaReadings) -> Iterator[Family]:
        lag = _gauge("event_loop_lag_seconds", "How late the event loop runs")
        lag.add_metric([], readings.loop_lag_seconds)
        yield lag
        ages = _gauge("loop_age_seconds", "Time since a loop last finished a pass", "loop")
        for name, age in _merged(readings.loop_ages, self._loop_names).items():
            ages.add_metric([name], age)
        yield ages
        if readings.view_age_seconds is not None:
            view = _gauge("cache_age_seconds", "Age of this replica's view of the store")
            view.add_metric([], readings.view_age_seconds)
            yield view

    def _of_usage(self, usages: Iterable[WorkloadUsage]) -> Iterator[Family]:
        shown = list(usages)
        left_out = max(0, len(shown) - self._usage_workloads_max)
        if left_out:
            # The same ones at every scrape: others each time would be series without end after all.
            shown = nsmallest(self._usage_workloads_max, shown, key=_workload_id)
        self._dropped += left_out * _SERIES_PER_WORKLOAD
        for name, attribute in _USAGE.items():
            family = _gauge(
                name, "Latest utilisation of a workload", "workload_id", "node_id", "type"
            )
            for usage in shown:
                labels = [usage.workload_id, usage.node_id, closed(usage.type, _TYPES)]
                family.add_metric(labels, getattr(usage, attribute))
            yield family
        dropped = CounterMetricFamily(
            PREFIX + "usage_series_dropped", "Utilisation series left out, summed over scrapes"
        )
        dropped.add_metric([], self._dropped)
        yield dropped


def _of_cluster(summary: ClusterSummary) -> Iterator[Family]:
    nodes = {status.lower(): count for status, count in summary.nodes_by_status.items()}
    workloads = {status.lower(): count for status, count in summary.workloads_by_status.items()}
    desired = {state.lower(): count for state, count in summary.workloads_by_desired_state.items()}
    yield _counts("nodes_status", "Nodes by status", "status", nodes, NODE_STATUSES)
    yield _counts("workloads_status", "Workloads by status", "status", workloads, WORKLOAD_STATUSES)
    if desired or not workloads:
        yield _counts(
            "workloads_desired_state", "Workloads by desired state", "desired_state", desired,
            DESIRED_STATES,
        )  # fmt: skip
    yield from _totals(summary.totals)
    now = {str(summary.mode): 1}
    yield _counts("mode", "1 for the operating mode", "mode", now, map(str, OperatingMode))
    leader = _gauge("leader", "1 where this replica leads")
    leader.add_metric([], int(summary.is_leader))
    yield leader
    yield from _of_replicas(summary.standing)


def _of_replicas(at: Standing) -> Iterator[Family]:
    now = {str(at.ha_mode): 1}
    yield _counts("ha_mode", "1 for how replicas share the work", "mode", now, map(str, HaMode))
    for name, text, value in (
        ("replicas", "Replicas that are registered", len(at.replicas)),
        ("nodes_owned", "Nodes that this replica acts for", at.owned_nodes),
        ("nodes_unowned", "Nodes that no replica acts for", at.unowned_nodes),
        ("nodes_doubly_owned", "Nodes that two replicas act for", at.doubly_owned_nodes),
        ("foreign_leader", "1 where a scheduler that is not ours leads", bool(at.foreign_leader)),
    ):
        family = _gauge(name, text)
        family.add_metric([], int(value))
        yield family


def _totals(totals: ClusterTotals) -> Iterator[Family]:
    kinds = {"allocatable": totals.allocatable, "allocated": totals.allocated, "used": totals.used}
    cpu = _gauge("cluster_cpu_millicores", "CPU of all nodes together", "kind")
    memory = _gauge("cluster_memory_mb", "Memory of all nodes together", "kind")
    for kind, sums in kinds.items():
        cpu.add_metric([kind], sums.cpu_millicores)
        memory.add_metric([kind], sums.memory_mb)
    yield cpu
    yield memory


def _counts(
    name: str, text: str, label: str, counts: Mapping[str, int], known: Iterable[str]
) -> GaugeMetricFamily:
    """One sample per known value, zero included, and one for the rest where there is any."""
    values = sorted(known)
    family = _gauge(name, text, label)
    for value in values:
        family.add_metric([value], counts.get(value, 0))
    rest = sum(count for value, count in counts.items() if value not in values)
    if rest:
        family.add_metric(["other"], rest)
    return family


def _merged(ages: Mapping[str, float], known: OpenLabel) -> dict[str, float]:
    oldest: dict[str, float] = {}
    for name, age in ages.items():
        oldest[known(name)] = max(age, oldest.get(known(name), 0.0))
    return oldest


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)
