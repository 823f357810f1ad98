"""Usage is the difference of two samples, and every container is asked at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from persys_agent.runtimes.docker.documents import Document
from persys_agent.runtimes.docker.usage import UsageMeter, sample, total_usage, use_between
from persys_core.model.states import WorkloadType

BEGAN = datetime(2026, 5, 1, tzinfo=UTC)


def stats(seconds: float, cpu_nanos: int, *, v2: bool = False) -> Document:
    cache = "inactive_file" if v2 else "total_inactive_file"
    read, write = ("read", "write") if v2 else ("Read", "Write")
    return {
        "read": (BEGAN + timedelta(seconds=seconds)).isoformat(),
        "cpu_stats": {"cpu_usage": {"total_usage": cpu_nanos}},
        "memory_stats": {"usage": 1000, "stats": {cache: 300}},
        "blkio_stats": {
            "io_service_bytes_recursive": [
                {"op": read, "value": 5},
                {"op": write, "value": 7},
                {"op": read, "value": 1},
                {"op": "Total", "value": 13},
            ]
        },
        "networks": {
            "eth0": {"rx_bytes": 1, "tx_bytes": 2},
            "eth1": {"rx_bytes": 3, "tx_bytes": 4},
        },
    }


@pytest.mark.parametrize("v2", [False, True])
def test_samples_are_read_of_both_cgroups(v2: bool) -> None:
    """Memory is without the cache that can be given back; devices and networks are summed."""
    found = sample(stats(0, 9, v2=v2))
    assert found is not None
    assert (found.memory_bytes, found.disk_read_bytes, found.disk_write_bytes) == (700, 6, 7)
    assert (found.net_rx_bytes, found.net_tx_bytes) == (4, 6)


def test_what_does_not_run_has_no_sample() -> None:
    """The Engine answers zeros for a container that ended meanwhile."""
    assert sample({"read": "0001-01-01T00:00:00Z", "cpu_stats": {}}) is None


@pytest.mark.parametrize(
    ("seconds", "nanos", "percent"),
    [(2, 2_000_000_000, 100.0), (1, 500_000_000, 50.0), (1, 3_000_000_000, 300.0), (0, 5, 0.0)],
)
def test_cpu_is_of_one_core_since_the_last_sample(
    seconds: float, nanos: int, percent: float
) -> None:
    """100 is one core for all of the time between; never the time before (defect 34)."""
    base = 10**15
    before, after = sample(stats(0, base)), sample(stats(seconds, base + nanos))
    assert before is not None
    assert after is not None
    assert use_between(before, after).cpu_percent == pytest.approx(percent)


def test_a_restarted_counter_is_not_negative() -> None:
    """A counter that went back began anew."""
    before, after = sample(stats(0, 10**12)), sample(stats(1, 10**8))
    assert before is not None
    assert after is not None
    assert use_between(before, after).cpu_percent == pytest.approx(10.0)


def test_an_application_uses_what_its_containers_use() -> None:
    """Sums over the containers, at the time of the last."""
    before, after = sample(stats(0, 1)), sample(stats(1, 500_000_001))
    assert before is not None
    assert after is not None
    use = use_between(before, after)
    found = total_usage("w", "n", WorkloadType.COMPOSE, "compose.stats", [use, use])
    assert found.cpu_percent == pytest.approx(100.0)
    assert (found.memory_bytes, found.net_rx_bytes, found.disk_write_bytes) == (1400, 8, 14)


class Everybody:
    """Answers nobody before all have asked."""

    def __init__(self, count: int) -> None:
        self._barrier = asyncio.Barrier(count)
        self.calls = 0

    async def stats(self, container_id: str) -> Document | None:
        self.calls += 1
        async with asyncio.timeout(5):
            await self._barrier.wait()
        return None if container_id == "gone" else stats(self.calls, self.calls * 10**9)


@pytest.mark.asyncio
async def test_all_are_asked_at_once() -> None:
    """Containers do not wait for each other; one that is new is sampled twice, one that is gone is
    left out."""
    engine = Everybody(3)
    meter = UsageMeter(engine, timedelta(0), 3)
    first = await meter.measure(["a", "b", "gone"])
    assert set(first) == {"a", "b"}
    assert engine.calls == 6
    engine = Everybody(2)
    meter._engine = engine
    assert set(await meter.measure(["a", "b"])) == {"a", "b"}
    assert engine.calls == 2
