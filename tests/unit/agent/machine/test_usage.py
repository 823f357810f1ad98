"""Use as differences of counters."""

from __future__ import annotations

from attrs import evolve

from persys_agent.runtimes.machine.usage import Counters, UsageMeter
from persys_core.model.states import WorkloadType

FIRST = Counters(2_000_000_000, 500, 100, 200, 300, 400)


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


def test_use_is_that_between_two_looks() -> None:
    """CPU in percent of one core over the time between, bytes as differences (defect 34)."""
    clock = Clock()
    meter = UsageMeter("n1", WorkloadType.VM, "source", clock)
    assert meter.measure({"w": FIRST}) == {}
    clock.now += 4
    second = Counters(4_000_000_000, 700, 110, 220, 330, 440)
    used = meter.measure({"w": second})["w"]
    # 2 s of CPU in 4 s
    assert used.cpu_percent == 50.0
    assert used.memory_bytes == 700
    assert (used.disk_read_bytes, used.disk_write_bytes) == (10, 20)
    assert (used.net_rx_bytes, used.net_tx_bytes) == (30, 40)
    assert (used.workload_id, used.node_id, used.type) == ("w", "n1", "vm")


def test_a_guest_that_began_anew_counts_from_zero() -> None:
    """Counters that went back are those of a new process."""
    clock = Clock()
    meter = UsageMeter("n1", WorkloadType.VM, "source", clock)
    meter.measure({"w": FIRST})
    clock.now += 1
    used = meter.measure({"w": evolve(FIRST, cpu_ns=100_000_000, disk_read_bytes=5)})["w"]
    assert used.cpu_percent == 10.0
    assert used.disk_read_bytes == 5


def test_what_is_gone_is_forgotten() -> None:
    """A machine that was away for a look is new again; no look takes no time."""
    clock = Clock()
    meter = UsageMeter("n1", WorkloadType.VM, "source", clock)
    meter.measure({"w": FIRST})
    assert meter.measure({"w": FIRST}) == {}
    clock.now += 1
    assert meter.measure({}) == {}
    clock.now += 1
    assert meter.measure({"w": FIRST}) == {}
