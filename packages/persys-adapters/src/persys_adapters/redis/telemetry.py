"""RedisTelemetry: copies of measurements and of reconcile outcomes, for people and for the meter.

Decided here: the keys, what ends when, and what happens to outcomes while Redis is away: they go to
a fallback, once per workload and changed outcome, so that an outage never moves the flood to the
state store (field report K04). Everything that is read comes from this replica's memory: no
decision may read Redis.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TypeAlias

from attrs import define, frozen

from persys_adapters.records.reconciliations import reconciliation_json
from persys_adapters.redis import telemetry_json
from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.event_json import rfc3339
from persys_adapters.redis.fallback import Fallback, Outcomes, ReconciliationFallback
from persys_adapters.redis.link import Command, RedisLink
from persys_adapters.redis.outbox import Outbox
from persys_adapters.redis.trouble import Lost, RedisTroubleError, TroubleLog
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_core.ports.clock import Clock
from persys_core.ports.observer import Metric, Observer

__all__ = ["HISTORY_KEY", "RedisTelemetry", "TelemetryOptions"]

HISTORY_KEY = "reconciliation:history"
WAITING_AT_MOST = 20_000


@frozen
class TelemetryOptions:
    """How long and how much is kept. ``meter_stream`` is empty where nothing is metered.

    ``prefix`` stands before every key but the meter's stream.
    """

    ttl: timedelta = timedelta(hours=24)
    history_entries: int = 1000
    meter_stream: str = "persys:usage:stream"
    meter_entries: int = 100_000
    prefix: str = ""


@frozen
class _Reconciled:
    workload_id: WorkloadId
    facts: Mapping[str, str]

    def commands(self, options: TelemetryOptions) -> Iterator[Command]:
        seconds = _seconds(options)
        record = reconciliation_json(self.workload_id, self.facts)
        status = telemetry_json.reconcile_status_json(self.facts)
        last, words = _places(options, self.workload_id)
        yield ("SET", last, record, "EX", seconds)
        yield ("SET", words, status, "EX", seconds)


@frozen
class _Told:
    """An outcome that differs from the workload's last: the history is not for repetitions."""

    workload_id: WorkloadId
    facts: Mapping[str, str]

    def commands(self, options: TelemetryOptions) -> Iterator[Command]:
        record = reconciliation_json(self.workload_id, self.facts)
        history = options.prefix + HISTORY_KEY
        yield ("LPUSH", history, record)
        yield ("LTRIM", history, 0, options.history_entries - 1)
        yield ("EXPIRE", history, _seconds(options))


@frozen
class _NodeUsed:
    usage: NodeUsage

    def commands(self, options: TelemetryOptions) -> Iterator[Command]:
        value = telemetry_json.node_usage_json(self.usage)
        key = f"{options.prefix}persys:usage:node:{self.usage.node_id}"
        yield ("SET", key, value, "EX", _seconds(options))


@frozen
class _WorkloadUsed:
    usage: WorkloadUsage
    event_id: str

    def commands(self, options: TelemetryOptions) -> Iterator[Command]:
        usage = self.usage
        value = telemetry_json.workload_usage_json(usage)
        yield ("SET", _usage_place(options, usage.workload_id), value, "EX", _seconds(options))
        if options.meter_stream:
            yield (
                "XADD", options.meter_stream, "MAXLEN", "~", options.meter_entries, "*",
                "event_id", self.event_id,
                "node_id", usage.node_id,
                "workload_id", usage.workload_id,
                "revision_id", "",
                "reported_at", rfc3339(usage.collected_at),
                "payload", telemetry_json.meter_payload(self.event_id, usage),
            )  # fmt: skip


@frozen
class _Gone:
    workload_id: WorkloadId

    def commands(self, options: TelemetryOptions) -> Iterator[Command]:
        places = _places(options, self.workload_id)
        yield ("DEL", *places, _usage_place(options, self.workload_id))


def _places(options: TelemetryOptions, workload_id: WorkloadId) -> tuple[str, str]:
    """Where the last outcome stands, and all its facts."""
    reconciled = f"{options.prefix}reconciliation:{workload_id}"
    return reconciled, f"{options.prefix}workload:{workload_id}:reconcile_status"


def _usage_place(options: TelemetryOptions, workload_id: WorkloadId) -> str:
    return f"{options.prefix}persys:usage:workload:{workload_id}"


_Item: TypeAlias = _Reconciled | _Told | _NodeUsed | _WorkloadUsed | _Gone


@frozen
class _TelemetrySink:
    """Writes items. Every one may be written twice: values are set anew, and the meter knows a
    sample by its id."""

    _link: RedisLink
    _options: TelemetryOptions

    async def write(self, batch: Mapping[str, _Item], *, unsure: bool) -> int:
        commands = [c for item in batch.values() for c in item.commands(self._options)]
        answers = await self._link.together(commands)
        return sum(isinstance(answer, RedisTroubleError) for answer in answers)


@define(eq=False)
class _TelemetryWatch:
    """Counts what was given up; while nothing can be written, outcomes go to the fallback."""

    _observer: Observer
    _log: TroubleLog
    _fallback: Fallback
    waiting: Callable[[], Iterable[_Item]] = tuple

    def lost(self, number: int, why: Lost) -> None:
        self._observer.increment(Metric.TELEMETRY_DROPPED, {"reason": str(why)}, number)
        if why is Lost.BUG:
            self._observer.increment(Metric.BUGS, {"where": "redis"})
        self._log.lost(number, str(why))

    def troubled(self, error: RedisTroubleError) -> None:
        self._log.troubled(error)
        for item in self.waiting():
            if isinstance(item, _Reconciled):
                self._fallback.take(item.workload_id, item.facts)

    def works(self) -> None:
        self._log.works()


class RedisTelemetry:
    """The telemetry of one replica; ``open`` makes it, and never fails for want of Redis."""

    def __init__(
        self,
        target: RedisTarget,
        clock: Clock,
        observer: Observer,
        options: TelemetryOptions,
        fallback: ReconciliationFallback | None = None,
    ) -> None:
        self._memory = MemoryTelemetry(clock=clock, ttl=options.ttl)
        self._link = RedisLink(target)
        self._fallback = Fallback(fallback)
        self._outcomes = Outcomes()
        watch = _TelemetryWatch(observer, TroubleLog(clock, "writing telemetry"), self._fallback)
        sink = _TelemetrySink(self._link, options)
        self._outbox: Outbox[_Item] = Outbox(sink, clock, watch, WAITING_AT_MOST)
        watch.waiting = self._outbox.items

    @classmethod
    async def open(
        cls,
        target: RedisTarget,
        clock: Clock,
        observer: Observer,
        stack: AsyncExitStack,
        options: TelemetryOptions | None = None,
        fallback: ReconciliationFallback | None = None,
    ) -> RedisTelemetry:
        """Telemetry that is written until ``stack`` is closed."""
        made = cls(target, clock, observer, options or TelemetryOptions(), fallback)
        running = asyncio.create_task(made._outbox.run())

        async def close() -> None:
            await made._outbox.close(running)
            await made._link.aclose()

        stack.push_async_callback(close)
        return made

    @property
    def waiting(self) -> int:
        """How many items are not written yet."""
        return len(self._outbox)

    def record_node_usage(self, usage: NodeUsage) -> None:
        """Keep ``usage`` as the node's latest, here and in Redis."""
        self._memory.record_node_usage(usage)
        self._outbox.put(f"node:{usage.node_id}", _NodeUsed(usage))

    def record_workload_usage(self, usage: WorkloadUsage) -> None:
        """Keep ``usage`` as the workload's latest, here and in Redis, and have it metered."""
        self._memory.record_workload_usage(usage)
        event_id = str(uuid.uuid4())
        self._outbox.put(event_id, _WorkloadUsed(usage, event_id))

    def record_reconciliation(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        """Keep the last reconcile outcome of a workload, for people."""
        self._memory.record_reconciliation(workload_id, facts)
        item = _Reconciled(workload_id, dict(facts))
        self._outbox.put(f"reconciliation:{workload_id}", item)
        if self._outcomes.is_new(workload_id, item.facts):
            self._outbox.put(str(uuid.uuid4()), _Told(workload_id, item.facts))
        if self._outbox.is_away:
            self._fallback.take(workload_id, item.facts)

    def reconciliation(self, workload_id: WorkloadId) -> Mapping[str, str] | None:
        """What ``record_reconciliation`` kept last; for people and tests."""
        return self._memory.reconciliation(workload_id)

    def node_usage(self, node_id: NodeId) -> NodeUsage | None:
        """The latest measurement known to this replica."""
        return self._memory.node_usage(node_id)

    def workload_usage(self, workload_id: WorkloadId) -> WorkloadUsage | None:
        """The latest measurement known to this replica."""
        return self._memory.workload_usage(workload_id)

    def workload_usages(self) -> Iterable[WorkloadUsage]:
        """The latest measurement of every workload."""
        return self._memory.workload_usages()

    def forget_workload(self, workload_id: WorkloadId) -> None:
        """The workload is gone; so is what was kept of it, here and in Redis."""
        self._memory.forget_workload(workload_id)
        self._fallback.forget(workload_id)
        self._outcomes.forget(workload_id)
        self._outbox.put(f"reconciliation:{workload_id}", _Gone(workload_id))

    async def flushed(self) -> None:
        """Wait until what was recorded here is in Redis."""
        await self._outbox.drained()


def _seconds(options: TelemetryOptions) -> int:
    return max(int(options.ttl.total_seconds()), 1)
