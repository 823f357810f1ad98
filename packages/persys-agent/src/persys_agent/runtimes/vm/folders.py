"""The folder of a workload on the host: what libvirt does not keep for us.

Decided here: the place of seed, console and disks without a path (one folder for each agent, below
it one for each workload, so that two agents never touch each other's), and that only files that we
know by name, or that are marked as this workload's, are deleted from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.machine.images import delete_disk
from persys_agent.runtimes.port import Owner
from persys_core.model.ids import WorkloadId, is_valid_id

__all__ = ["WorkloadFolder", "folder_of", "owner_folder"]

_MARKED = "*.persys-managed"
_NAME_LENGTH = 100
_FOLDER_MODE = 0o711  # QEMU's user has to reach its files by name


@frozen
class WorkloadFolder:
    """``path`` may not exist."""

    path: Path

    @property
    def seed(self) -> Path:
        """The cloud-init seed."""
        return self.path / "seed.iso"

    @property
    def console(self) -> Path:
        """What the serial port wrote."""
        return self.path / "console.log"

    def make(self) -> None:
        """Make it. Raises ``OSError``."""
        self.path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def clear(self, workload_id: WorkloadId, disks: Iterable[str] = ()) -> None:
        """Delete what is the workload's: seed, console, and disks with its mark, here and among
        ``disks``."""
        marked = [str(path.with_suffix("")) for path in self.path.glob(_MARKED)]
        self.discard(workload_id, [*marked, *disks])

    def discard(self, workload_id: WorkloadId, disks: Iterable[str]) -> None:
        """Delete seed, console and these ``disks`` alone: others may hold an older revision's
        data."""
        for path in map(Path, disks):
            delete_disk(path, workload_id)
        for path in (self.seed, self.console):
            path.unlink(missing_ok=True)
        with suppress(OSError):  # not there, or not empty
            self.path.rmdir()


def owner_folder(state_dir: Path, owner: Owner) -> Path:
    """The folder of all workloads of one agent."""
    digest = hashlib.sha256(f"{owner.cluster_id}/{owner.node_id}".encode()).hexdigest()[:8]
    name = owner.node_id[:_NAME_LENGTH] if is_valid_id(owner.node_id) else "node"
    return state_dir / f"{name}-{digest}"


def folder_of(state_dir: Path, owner: Owner, workload_id: WorkloadId) -> WorkloadFolder:
    """The folder of one workload; ``workload_id`` has to be a valid id."""
    return WorkloadFolder(owner_folder(state_dir, owner) / workload_id)
