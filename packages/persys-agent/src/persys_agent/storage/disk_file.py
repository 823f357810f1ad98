"""Files in a volume's folder: the disk of a machine, and the removal of everything.

Decided here: a machine's disk is one sparse raw file that grows and never shrinks; a tree is
removed only where nothing is mounted inside of it, and is moved aside first, so that a volume of
the same name that is made meanwhile does not find half of the old data. All of it blocks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from persys_agent.storage.mounts import Kernel, mounts_below
from persys_agent.storage.port import StorageFailedError
from persys_core.model.spec import ManagedVolume

__all__ = ["DISK_NAME", "GIB", "ensure_disk", "ensure_folder", "remove_tree"]

GIB = 1 << 30
DISK_NAME = "disk.raw"
_TRASH = ".deleted-"


def ensure_folder(folder: Path) -> None:
    """Make the folder of a volume. Raises ``StorageFailedError``."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise StorageFailedError(f"{folder} cannot be made: {error.strerror}") from error
    if folder.is_symlink():
        raise StorageFailedError(f"{folder} is a link; a volume's data stands in its own folder")


def ensure_disk(folder: Path, volume: ManagedVolume, size_gb: int) -> Path:
    """The machine's disk in ``folder``, at least ``size_gb`` GiB. Raises ``StorageFailedError``."""
    if size_gb <= 0:
        raise StorageFailedError(
            f"volume {volume.name!r}: a machine's volume needs size_gb of at least 1"
        )
    path = folder / DISK_NAME
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_size < size_gb * GIB:
                os.ftruncate(handle, size_gb * GIB)
        finally:
            os.close(handle)
    except OSError as error:
        raise StorageFailedError(f"{path} cannot be made: {error.strerror}") from error
    return path


def remove_tree(tree: Path, kernel: Kernel) -> None:
    """Remove a volume's folder; absent is fine. Raises ``StorageFailedError``."""
    inside = mounts_below(kernel.mounts(), os.path.realpath(tree))
    if inside:
        raise StorageFailedError(
            f"{inside[0].source} is mounted at {inside[0].point}; unmount it, nothing is removed"
        )
    aside = tree.with_name(f"{_TRASH}{tree.name}")
    try:
        if aside.exists():
            shutil.rmtree(aside)
        if tree.is_symlink():
            raise StorageFailedError(f"{tree} is a link; nothing is removed")
        if tree.exists():
            tree.rename(aside)
            shutil.rmtree(aside)
    except OSError as error:
        raise StorageFailedError(
            f"{error.filename or tree} cannot be removed: {error.strerror}"
        ) from error
