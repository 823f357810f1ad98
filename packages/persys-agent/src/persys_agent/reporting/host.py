"""The machine's size and use, read from the kernel without waiting.

Decided here: the processor's use is the difference between two readings, so that nobody sleeps to
measure it (agent defects 25 and 27).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from attrs import frozen

from persys_core.model.resources import Resources

__all__ = ["Host", "HostUse"]

_MB = 1024 * 1024
_GB = 1024 * _MB
_MILLICORES = 1000


@frozen
class HostUse:
    """What was used when it was read last; percents from 0 to 100."""

    used: Resources = Resources()
    cpu_percent: float = 0.0
    memory_percent: float = 0.0
    disk_percent: float = 0.0


class Host:
    """``proc`` is where the kernel's files are, ``disk`` whose file system is measured."""

    def __init__(self, proc: Path = Path("/proc"), disk: Path = Path("/")) -> None:
        self._proc = proc
        self._disk = disk
        self._ticks = self._cpu_ticks()
        self.use = HostUse()

    def size(self) -> Resources:
        """Logical processors, memory, and the disk of ``/``."""
        return Resources.of(
            cpu_millicores=(os.cpu_count() or 1) * _MILLICORES,
            memory_mb=self._memory()[0] // _MB,
            disk_gb=shutil.disk_usage(self._disk).total // _GB,
        )

    def measure(self) -> HostUse:
        """Read anew; the processor's use is that since the last reading."""
        busy, total = self._cpu_ticks()
        since = total - self._ticks[1]
        cpu = (busy - self._ticks[0]) / since if since > 0 else self.use.cpu_percent / 100
        self._ticks = (busy, total)
        memory, available = self._memory()
        disk = shutil.disk_usage(self._disk)
        used = memory - available
        self.use = HostUse(
            Resources.of(
                cpu_millicores=round((os.cpu_count() or 1) * _MILLICORES * cpu),
                memory_mb=used // _MB,
                disk_gb=disk.used // _GB,
            ),
            cpu_percent=100 * cpu,
            memory_percent=100 * used / memory if memory else 0.0,
            disk_percent=100 * disk.used / disk.total if disk.total else 0.0,
        )
        return self.use

    def _cpu_ticks(self) -> tuple[int, int]:
        """Ticks that were not idle, and all; zeros where the kernel does not say."""
        try:
            line = (self._proc / "stat").read_text().split("\n", 1)[0].split()
        except OSError:
            return 0, 0
        ticks = [int(word) for word in line[1:9]]
        idle = sum(ticks[3:5])
        return sum(ticks) - idle, sum(ticks)

    def _memory(self) -> tuple[int, int]:
        """Bytes in all and bytes that are available."""
        try:
            lines = (self._proc / "meminfo").read_text().splitlines()
        except OSError:
            return 0, 0
        fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        total, available = (int(fields.get(key, ["0"])[0]) for key in ("MemTotal", "MemAvailable"))
        return total * 1024, available * 1024
