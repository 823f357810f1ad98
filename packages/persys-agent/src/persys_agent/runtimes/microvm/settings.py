"""What an operator decides about microVMs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from attrs import frozen

__all__ = ["MicroVmSettings"]


@frozen
class MicroVmSettings:
    """``kernel`` is the file in ``images_root`` that machines boot which name none. ``state_dir``
    has to be short, since a unix socket's path has 107 bytes at most. ``call_timeout`` is for one
    call of Firecracker's API, ``start_timeout`` until its socket answers."""

    binary: Path = Path("/usr/bin/firecracker")
    images_root: Path = Path("/var/lib/persys/images")
    state_dir: Path = Path("/var/lib/persys/microvm")
    disk_roots: tuple[Path, ...] = ()
    kernel: str = "vmlinux"
    command_line: str = "console=ttyS0 reboot=k panic=1 pci=off"
    replace_grace: timedelta = timedelta(seconds=10)
    call_timeout: timedelta = timedelta(seconds=5)
    start_timeout: timedelta = timedelta(seconds=10)
    console_max_bytes: int = 16 * 1024 * 1024
