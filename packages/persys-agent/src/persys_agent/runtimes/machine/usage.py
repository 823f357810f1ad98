"""What machines use: differences between two looks at counters that only grow.

Decided here: ``cpu_percent`` is that of the time between two looks, in percent of one core. A
machine is reported from its second look on; a counter that went back (the guest was started anew)
counts from zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from attrs import define, field, frozen

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = ["Counters", "UsageMeter"]


@frozen
class Counters:
    """Totals since the guest began; ``memory_bytes`` is of now."""

    cpu_ns: int
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


@define
class UsageMeter:
    """Remembers the last look at every machine; ``clock`` gives seconds."""

    node_id: NodeId
    kind: WorkloadType
    source: str
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
            type=self.kind.value,
            cpu_percent=_since(now.cpu_ns, old.cpu_ns) / (over * 1e9) * 100,
            memory_bytes=now.memory_bytes,
            disk_read_bytes=_since(now.disk_read_bytes, old.disk_read_bytes),
            disk_write_bytes=_since(now.disk_write_bytes, old.disk_write_bytes),
            net_rx_bytes=_since(now.net_rx_bytes, old.net_rx_bytes),
            net_tx_bytes=_since(now.net_tx_bytes, old.net_tx_bytes),
            collected_at=datetime.now(UTC),
            source=self.source,
        )


def _since(now: int, before: int) -> int:
    return now - before if now >= before else now
