"""The end of the node's lease in a small file, for the next process of this agent.

Decided here: that it is not synced, since a machine that goes down takes its work with it, and that
the boot stands beside it, since the clock that it is told by begins anew with each.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import structlog

__all__ = ["LeaseFile", "boot_of_this_machine"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_of_this_machine() -> str:
    """What tells this start of the machine from every other; empty where nothing does."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class LeaseFile:
    """Implements ``engine.fence.LeaseMemory``."""

    def __init__(self, path: Path, boot: str | None = None) -> None:
        self._path = path
        self._boot = boot_of_this_machine() if boot is None else boot

    def recall(self) -> float | None:
        """See ``LeaseMemory``."""
        try:
            kept = json.loads(self._path.read_text())
            boot, ends = kept["boot"], float(kept["ends"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError):
            return -math.inf
        same = bool(self._boot) and boot == self._boot
        return ends if same and math.isfinite(ends) else -math.inf

    def keep(self, ends: float) -> None:
        """See ``LeaseMemory``."""
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.write_text(json.dumps({"boot": self._boot, "ends": ends}))
            os.replace(beside, self._path)
        except OSError as error:
            structlog.get_logger().warning(
                "the end of the lease cannot be kept; exclusive work would stop at a restart",
                path=str(self._path),
                reason=str(error),
            )
