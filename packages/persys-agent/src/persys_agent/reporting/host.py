"""How much of the machine is used, read from the kernel without waiting.

Decided here: the processor's use is the difference between two readings, so that nobody sleeps to
measure it (agent defects 25 and 27).
"""

from __future__ import annotations

import psutil
from attrs import frozen

from persys_core.model.resources import Resources

__all__ = ["Host", "HostUse"]

_MIB = 1 << 20
_GIB = 1 << 30


@frozen
class HostUse:
    """What was used when it was read last; percents from 0 to 100."""

    used: Resources = Resources()
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    disk_percent: float = 0.0


class Host:
    """``use`` is the last reading; ``disk`` is a path on the file system that is measured."""

    def __init__(self, disk: str = "/") -> None:
        self.use = HostUse()
        self._disk = disk
        self._millicores = (psutil.cpu_count(logical=True) or 1) * 1000
        psutil.cpu_percent(interval=None)  # the first reading has nothing to compare with

    def measure(self) -> HostUse:
        """Read anew; the processor's use is that since the last reading."""
        cpu = psutil.cpu_percent(interval=None)
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
