"""The metric families, and how what the core reports becomes numbers in them.

Decided here: names, labels and buckets, in a registry of our own. Families of the reference keep
their exact names (``persys_scheduler_`` and the labels of its page). What is read at each scrape
instead of counted stands in ``gauges``. Label values are closed sets: see ``labels``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.placement.explain import Verdict
from persys_core.ports.observer import Metric
from persys_core.ports.tracer import NullTracer, Span, SpanName, Tracer
from persys_core.reconcile.actions import Action
from persys_server.observability.labels import (
    AGENT_RPCS,
    CODES,
    METHODS,
    OTHER,
    WRITE_CATEGORIES,
    OpenLabel,
    agent_code,
    closed,
    write_category,
)
from persys_server.observability.present import exemplar

__all__ = ["BUCKETS", "PREFIX", "Metrics", "PrometheusObserver"]

PREFIX = "persys_scheduler_"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_COUNTERS: Mapping[Metric, tuple[str, str, tuple[str, ...]]] = {
    Metric.RECONCILE_RESULTS: (
        "reconciliation_results_total", "Outcomes of reconciling a workload", ("action", "success"),
    ),
    Metric.RECONCILE_CYCLES: (
        "reconciliation_cycles_total", "Reconcile passes", ("result",),
    ),
    Metric.STORE_WRITES: (
        "state_store_writes_total", "Records written to the state store", ("category",),
    ),
    Metric.STORE_FAILURES: (
        "state_store_failures_total", "Commits that the state store did not answer", (),
    ),
    Metric.COMMIT_CONFLICTS: (
        "commit_conflicts_total", "Commits that lost a race and were decided anew", (),
    ),
    Metric.PLACEMENTS: (
        "placements_total", "Placement decisions", ("result",),
    ),
    Metric.STALE_HEARTBEATS: (
        "stale_heartbeat_total", "Heartbeats that were older than one already seen", (),
    ),
    Metric.AGENT_CALLS: (
        "agent_rpc_requests_total", "Calls to agents", ("rpc", "code"),
    ),
    Metric.LEDGER_REPAIRS: (
        "ledger_repairs_total", "Allocation records that had to be corrected", (),
    ),
    Metric.EVICTIONS: (
        "evictions_total", "Nodes or workloads taken from silent nodes", ("result",),
    ),
    Metric.EVENTS_DROPPED: (
        "events_dropped_total", "Events that could not be kept", ("reason",),
    ),
    Metric.TELEMETRY_DROPPED: (
        "telemetry_dropped_total", "Measurements and outcomes that could not be kept", ("reason",),
    ),
    Metric.BUGS: (
        "bugs_total", "Unexpected errors; anything but 0 is a bug to report", ("where",),
    ),
}  # fmt: skip
_HISTOGRAMS: Mapping[Metric, tuple[str, str, tuple[str, ...]]] = {
    Metric.RECONCILE_CYCLE_SECONDS: (
        "reconciliation_cycle_duration_seconds", "Duration of a reconcile pass", (),
    ),
    Metric.AGENT_CALLS: (
        "agent_rpc_duration_seconds", "Duration of calls to agents", ("rpc", "code"),
    ),
}  # fmt: skip

# An alert cannot see the first count of a series that was not there before.
_FROM_THE_START: tuple[tuple[Metric, str, Iterable[str]], ...] = (
    (Metric.STORE_WRITES, "category", WRITE_CATEGORIES),
    (Metric.RECONCILE_CYCLES, "result", ("success", "error")),
    (Metric.PLACEMENTS, "result", tuple(map(str, Verdict))),
    (Metric.EVICTIONS, "result", ("moved", "pending")),
    (Metric.EVENTS_DROPPED, "reason", (OTHER,)),
    (Metric.BUGS, "where", (OTHER, "grpc")),
)
_ACTIONS = frozenset(map(str, Action))
_RESULTS = frozenset({"success", "error", "moved", "pending", *map(str, Verdict)})

Labels: TypeAlias = Mapping[str, str]


class Metrics:
    """One registry with every family that is counted; ``page`` is what /metrics answers."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._requests = self._counter(
            "grpc_server_requests_total", "gRPC requests served", ("method", "code")
        )
        self._request_seconds = self._histogram(
            "grpc_server_request_duration_seconds", "Duration of gRPC requests", ("method", "code")
        )
        self.counters = {metric: self._counter(*shape) for metric, shape in _COUNTERS.items()}
        self.histograms = {metric: self._histogram(*shape) for metric, shape in _HISTOGRAMS.items()}
        for metric, label, values in _FROM_THE_START:
            for value in values:
                self.counters[metric].labels(**{label: value})

    def request_served(self, method: str, code: int, seconds: float) -> None:
        """Count one gRPC request. ``method`` is the full path; ``code`` a status number."""
        labels = {"method": closed(method, METHODS), "code": CODES[code]}
        self._requests.labels(**labels).inc()
        self._request_seconds.labels(**labels).observe(seconds, exemplar())

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """Every family and its content type: OpenMetrics, with exemplars, where it is accepted."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _counter(self, name: str, text: str, labels: tuple[str, ...]) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...]) -> Histogram:
        return Histogram(PREFIX + name, text, labels, buckets=BUCKETS, registry=self.registry)


class PrometheusObserver:
    """The core's Observer port on ``Metrics``. Never raises: an unknown label counts as ``other``.

    Where the core leaves a label out, its value is ``other`` as well. Spans go to ``tracer``.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._metrics = metrics
        self._tracer: Tracer = tracer or NullTracer()
        self._open: dict[tuple[Metric, str], OpenLabel] = {}

    def increment(self, metric: Metric, labels: Labels, by: int = 1) -> None:
        """Add ``by`` to a counter."""
        counter = self._metrics.counters.get(metric)
        if counter is not None and by > 0:
            names = _COUNTERS[metric][2]
            (counter.labels(**self._values(metric, names, labels)) if names else counter).inc(by)

    def record(self, metric: Metric, seconds: float, labels: Labels) -> None:
        """One duration in seconds."""
        histogram = self._metrics.histograms.get(metric)
        if histogram is not None:
            names = _HISTOGRAMS[metric][2]
            values = self._values(metric, names, labels)
            measured = histogram.labels(**values) if names else histogram
            measured.observe(max(seconds, 0.0), exemplar())

    def span(
        self,
        name: SpanName,
        *,
        workload_id: WorkloadId = "",
        node_id: NodeId = "",
        operation: str = "",
        size: int = 0,
    ) -> AbstractContextManager[Span]:
        """As the tracer says."""
        return self._tracer.span(
            name, workload_id=workload_id, node_id=node_id, operation=operation, size=size
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """As the tracer says."""
        return self._tracer.headers()

    def _values(self, metric: Metric, names: tuple[str, ...], labels: Labels) -> dict[str, str]:
        return {name: self._value(metric, name, labels) for name in names}

    def _value(self, metric: Metric, name: str, labels: Labels) -> str:
        match name:
            case "rpc":
                return closed(labels.get("rpc", ""), AGENT_RPCS)
            case "code":
                return agent_code(labels.get("code", labels.get("result", "")))
            case "action":
                return closed(labels.get("action", ""), _ACTIONS)
            case "category":
                return write_category(labels.get("category", ""))
            case "result":
                return closed(labels.get("result", ""), _RESULTS)
            case "success":
                return closed(labels.get("success", "").lower(), ("true", "false"))
            case _:
                known = self._open.setdefault((metric, name), OpenLabel())
                return known(labels.get(name, ""))
