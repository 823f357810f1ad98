"""The metric families of an agent.

Decided here: names, labels and buckets, in a registry of our own. Families of agents in the field
keep their exact names. All of these are written (defect 12); those of a garbage collector are
absent except for the orphans that are found, since this agent removes nothing by itself. A series
of ``workload_count`` is 0 where there is none, never the last number. Label values are closed sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from persys_agent.runtimes.port import FailureCode
from persys_core.model.observation import AgentState
from persys_core.model.states import WorkloadType

__all__ = ["PREFIX", "AgentMetrics", "HostPercents"]

PREFIX = "persys_agent_"
_OTHER = "OTHER"
_CODES = frozenset({*map(str, FailureCode), "RESOURCE_QUOTA_EXCEEDED", "UNKNOWN_ERROR"})
_TASK_STATUSES = ("completed", "failed")


class HostPercents(Protocol):
    """What a reading of the host has for the gauges; percents from 0 to 100."""

    @property
    def cpu_percent(self) -> float: ...

    @property
    def memory_percent(self) -> float: ...

    @property
    def disk_percent(self) -> float: ...


class AgentMetrics:
    """One registry with every family; ``page`` is what /metrics answers."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._add_workloads()
        self._add_host()
        self._add_tasks()

    def workloads(self, present: Iterable[tuple[AgentState, WorkloadType]]) -> None:
        """All workloads there are now, one item for each."""
        counts = {(state, kind): 0 for state in AgentState for kind in WorkloadType}
        for each in present:
            counts[each] += 1
        for (state, kind), count in counts.items():
            self._count.labels(state.lower(), kind.value).set(count)

    def applied(self, took: timedelta, *, created: bool, failed: bool) -> None:
        """An apply ended; ``created``: it made something that was not there."""
        self._apply_seconds.observe(took.total_seconds())
        if created:
            self._created.inc()
        if failed:
            self._failed.inc()

    def deleted(self, took: timedelta, *, failed: bool) -> None:
        """A delete ended."""
        self._delete_seconds.observe(took.total_seconds())
        if not failed:
            self._deleted.inc()

    def reconciled(self, took: timedelta) -> None:
        """A pass over all workloads ended."""
        self._reconcile_seconds.observe(took.total_seconds())
        self._reconciled.inc()

    def runtimes(self, available: Mapping[WorkloadType, bool]) -> None:
        """Which runtimes can be used; one that is not named is not."""
        for kind in WorkloadType:
            self._runtime.labels(kind.value).set(available.get(kind, False))

    def host(self, use: HostPercents, mount_point: str = "/") -> None:
        """A reading of the host."""
        self._cpu.set(use.cpu_percent)
        self._memory.set(use.memory_percent)
        self._disk.labels(mount_point).set(use.disk_percent)

    def error(self, code: str) -> None:
        """Something failed with one of the agents' codes; any other text counts as OTHER."""
        self._errors.labels(code if code in _CODES else _OTHER).inc()

    def orphans(self, found: Mapping[WorkloadType, int]) -> None:
        """Instances of ours that nobody asked for, as found now."""
        for kind in WorkloadType:
            self._orphans.labels(kind.value).set(found.get(kind, 0))

    def queued(self, tasks: int) -> None:
        """How many tasks wait."""
        self._depth.set(tasks)

    def task(self, kind: str, took: timedelta, *, failed: bool) -> None:
        """A task ended; ``kind`` is its action type (``apply_workload`` …)."""
        status = _TASK_STATUSES[failed]
        self._task_seconds.labels(kind, status).observe(took.total_seconds())
        self._executions.labels(kind, status).inc()
        if failed:
            self._task_failures.labels(kind).inc()

    def page(self, accept: str) -> tuple[bytes, str]:
        """The exposition in the format that ``accept`` prefers, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _add_workloads(self) -> None:
        self._count = self._gauge(
            "workload_count", "Workloads by state and type", ("state", "type")
        )
        self._created = self._counter("workload_created", "Workloads made")
        self._deleted = self._counter("workload_deleted", "Workloads removed")
        self._failed = self._counter("workload_failed", "Applies that failed")
        self._reconciled = self._counter("workload_reconcile", "Passes over all workloads")
        self._apply_seconds = self._histogram("workload_apply", "Duration of applies")
        self._delete_seconds = self._histogram("workload_delete", "Duration of deletes")
        self._reconcile_seconds = self._histogram("workload_reconcile", "Duration of passes")
        self._errors = self._counter("errors", "Failures by code", ("error_code",))
        self._orphans = self._gauge(
            "garbage_collection_orphaned_resources_found",
            "Instances of this node that nobody asked for; they are reported, not removed",
            ("resource_type",),
        )
        self.workloads(())
        self.orphans({})

    def _add_host(self) -> None:
        self._runtime = self._gauge(
            "runtime_health_status", "1 where the runtime can be used", ("runtime_type",)
        )
        self._memory = self._gauge("system_memory_utilization_percent", "Memory of the host")
        self._cpu = self._gauge("system_cpu_utilization_percent", "Processors of the host")
        self._disk = self._gauge(
            "system_disk_utilization_percent", "Disk of the host", ("mount_point",)
        )
        self.runtimes({})

    def _add_tasks(self) -> None:
        self._depth = self._gauge("task_queue_depth", "Tasks that wait")
        self._task_seconds = Histogram(
            f"{PREFIX}task_latency_seconds",
            "Duration of tasks",
            ("type", "status"),
            registry=self.registry,
        )
        self._executions = self._counter("task_executions", "Tasks that ended", ("type", "status"))
        self._task_failures = self._counter("task_failures", "Tasks that failed", ("type",))

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"{PREFIX}{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"{PREFIX}{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"{PREFIX}{name}_duration_seconds", text, registry=self.registry)
