"""What a driver that mounts needs of a host, and what to do where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from persys_agent.commands import CommandError, Commands
from persys_agent.storage.mounts import Kernel

__all__ = ["first_missing"]

_QUICK = timedelta(seconds=5)


async def first_missing(
    commands: Commands,
    kernel: Kernel,
    *,
    programs: Mapping[str, str],
    module: str,
    is_loaded: bool,
) -> str:
    """What is missing and what to do, empty for nothing. Never raises.

    ``programs`` names the package of each program. Nothing is loaded by asking: ``mount`` and
    ``rbd`` load the module when it is needed.
    """
    if not kernel.is_root():
        return "mounting needs root; run the agent as root"
    absent = next((each for each in programs if not commands.find(each)), None)
    if absent is not None:
        return f"{absent} is not on this host; install {programs[absent]}"
    if not is_loaded and not await _can_be_loaded(commands, module):
        return f"this kernel has no {module} (not loaded, and no module to load)"
    return ""


async def _can_be_loaded(commands: Commands, module: str) -> bool:
    try:
        return (await commands.run(("modprobe", "--dry-run", module), timeout=_QUICK)).ok
    except CommandError:
        return False
