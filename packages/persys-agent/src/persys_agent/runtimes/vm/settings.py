"""What an operator decides about virtual machines."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from attrs import frozen

from persys_agent.settings.parse import Accelerator

__all__ = ["Accelerator", "VmSettings"]


@frozen
class VmSettings:
    """Folders must be readable by QEMU's user. ``disk_roots`` are further folders in which specs
    may name disks; ``replace_grace`` is how long the guest of an older revision may take to shut
    down; ``console_max_bytes`` what a console file may grow to."""

    images_root: Path = Path("/var/lib/libvirt/images")
    state_dir: Path = Path("/var/lib/persys/vm")
    disk_roots: tuple[Path, ...] = ()
    accelerator: Accelerator = Accelerator.AUTO
    default_network: str = "default"
    replace_grace: timedelta = timedelta(seconds=30)
    call_timeout: timedelta = timedelta(seconds=60)
    console_max_bytes: int = 16 * 1024 * 1024
