"""How much of the machine is used, read from the kernel without waiting.

Decided here: the processor's use is the difference between two readings of its counters, so nobody
sleeps to measure it (agent defects 25 and 27). The readings are ours and not psutil's, which keeps
them per thread. Two readings within one tick of the counters give the use that is known already.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil
from attrs import frozen

from persys_core.model.resources import Resources

__all__ = ["CpuTimes", "HostMeter", "HostUse", "busy_percent", "read_cpu_times"]

_MIB = 1 << 20
_GIB = 1 << 30
_LEAST_SECONDS = 0.05


@frozen
class CpuTimes:
    """Seconds since boot, of all processors together."""

    total: float
    idle: float


@frozen
class HostUse:
    """What was used when it was read last; percents from 0 to 100."""

    used: Resources = Resources()
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    disk_percent: float = 0.0


def busy_percent(before: CpuTimes, now: CpuTimes) -> float | None:
    """How busy the processors were between two readings; ``None`` where too little time passed, or
    the counters went back, as they do when a processor is switched off."""
    passed, idle = now.total - before.total, now.idle - before.idle
    if passed < _LEAST_SECONDS or idle < 0:
        return None
    return min(100.0, max(0.0, 100.0 * (1 - idle / passed)))


def read_cpu_times() -> CpuTimes:
    """The counters. Waiting for a disk is idle, and a guest's time is in its host's already."""
    times = psutil.cpu_times()
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return CpuTimes(total, times.idle + getattr(times, "iowait", 0.0))


class HostMeter:
    """``use`` is the last reading; ``disk`` is a path on the file system that is measured."""

    def __init__(
        self, disk: str = "/", *, cpu_times: Callable[[], CpuTimes] = read_cpu_times
    ) -> None:
        self.use = HostUse()
        self._disk = disk
        self._cpu_times = cpu_times
        self._millicores = (psutil.cpu_count(logical=True) or 1) * 1000
        self._last = cpu_times()

    def measure(self) -> HostUse:
        """Read anew, in well under a millisecond; the processor's use is that since the last
        reading. Raises ``OSError`` where the disk cannot be asked."""
        cpu = self._cpu()
        memory = psutil.virtual_memory()
        disk = psutil.disk_usage(self._disk)
        self.use = HostUse(
            Resources.of(
                cpu_millicores=round(self._millicores * cpu / 100),
                memory_mb=(memory.total - memory.available) // _MIB,
                disk_gb=disk.used // _GIB,
            ),
            cpu,
            memory.percent,
            disk.percent,
        )
        return self.use

    def _cpu(self) -> float:
        now = self._cpu_times()
        percent = busy_percent(self._last, now)
        if percent is None:
            return self.use.cpu_percent
        self._last = now
        return percent
