"""What virtual machines use, from libvirt's counters.

Decided here: counters become differences between two looks, so ``cpu_percent`` is that of the time
between them, in percent of one core. A machine is reported from its second look on; a counter that
went back (the guest was started anew) counts from zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from attrs import define, field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["STATS", "Counters", "UsageMeter", "counters_of"]

STATS = 2 | 4 | 16 | 32
"""VIR_DOMAIN_STATS_CPU_TOTAL, BALLOON, INTERFACE and BLOCK."""
_SOURCE = "libvirt.domain_stats"
_KIB = 1024


@frozen
class Counters:
    """Totals since the guest began; ``memory_bytes`` is of now."""

    cpu_ns: int
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


def counters_of(stats: Mapping[str, object]) -> Counters:
    """The counters in one record of ``getAllDomainStats``; what is missing is zero."""
    return Counters(
        cpu_ns=_number(stats.get("cpu.time")),
        memory_bytes=_KIB * (_number(stats.get("balloon.rss") or stats.get("balloon.current"))),
        disk_read_bytes=_sum(stats, "block", "rd.bytes"),
        disk_write_bytes=_sum(stats, "block", "wr.bytes"),
        net_rx_bytes=_sum(stats, "net", "rx.bytes"),
        net_tx_bytes=_sum(stats, "net", "tx.bytes"),
    )


def _sum(stats: Mapping[str, object], kind: str, suffix: str) -> int:
    count = _number(stats.get(f"{kind}.count"))
    return sum(_number(stats.get(f"{kind}.{index}.{suffix}")) for index in range(count))


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


@define
class UsageMeter:
    """Remembers the last look at every machine; ``clock`` gives seconds."""

    node_id: NodeId
    clock: Callable[[], float] = time.monotonic
    _last: dict[WorkloadId, tuple[float, Counters]] = field(factory=dict, init=False)

    def measure(self, counted: Mapping[WorkloadId, Counters]) -> dict[WorkloadId, WorkloadUsage]:
        """The use since the last look, of those that were seen then; others are remembered."""
        now, before = self.clock(), self._last
        self._last = {each: (now, counters) for each, counters in counted.items()}
        return {
            each: self._usage(each, counters, before[each][1], now - before[each][0])
            for each, counters in counted.items()
            if each in before and now > before[each][0]
        }

    def _usage(self, name: WorkloadId, now: Counters, old: Counters, over: float) -> WorkloadUsage:
        return WorkloadUsage(
            workload_id=name,
            node_id=self.node_id,
            type=WorkloadType.VM.value,
            cpu_percent=_since(now.cpu_ns, old.cpu_ns) / (over * 1e9) * 100,
            memory_bytes=now.memory_bytes,
            disk_read_bytes=_since(now.disk_read_bytes, old.disk_read_bytes),
            disk_write_bytes=_since(now.disk_write_bytes, old.disk_write_bytes),
            net_rx_bytes=_since(now.net_rx_bytes, old.net_rx_bytes),
            net_tx_bytes=_since(now.net_tx_bytes, old.net_tx_bytes),
            collected_at=datetime.now(UTC),
            source=_SOURCE,
        )


def _since(now: int, before: int) -> int:
    return now - before if now >= before else now
