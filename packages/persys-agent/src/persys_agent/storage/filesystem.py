"""File systems on block devices.

Decided here: a device gets a file system only where blkid, asked to look at the device itself, says
with its exit code that it found nothing at all. One that holds something else (partitions, a second
signature) is never touched.
"""

from __future__ import annotations

from persys_agent.storage.port import StorageFailedError
from persys_agent.storage.stage import Stage

__all__ = ["DEFAULT_FS", "checked_fs_type", "ensure_filesystem", "grow_filesystem"]

DEFAULT_FS = "ext4"
_FOUND_NOTHING = 2
_MAKERS = {"ext4": ("mkfs.ext4", "-q", "-m", "0"), "xfs": ("mkfs.xfs", "-q")}


def checked_fs_type(given: str) -> str:
    """The type, in lower case; empty is ext4. Raises ``StorageFailedError``."""
    fs_type = given.strip().lower() or DEFAULT_FS
    if fs_type not in _MAKERS:
        raise StorageFailedError(
            f"fs_type {given[:40]!r} is not made by this driver; use one of {', '.join(_MAKERS)}"
        )
    return fs_type


async def ensure_filesystem(stage: Stage, device: str, fs_type: str, *, may_make: bool) -> None:
    """Make the file system where there is none. Raises ``StorageFailedError`` where the device
    holds something else, or may not be written."""
    found = await _found(stage, device)
    if found is None:
        if not may_make:
            raise StorageFailedError(f"{device} has no file system, and is to be read only")
        ended = await stage.run(*_MAKERS[fs_type], device)
        if not ended.ok:
            raise StorageFailedError(f"{device}: no {fs_type} can be made: {ended.said}")
    elif found != fs_type:
        raise StorageFailedError(
            f"{device} holds {found or 'something that is no file system'} and not {fs_type}; it is"
            " left as it is"
        )


async def grow_filesystem(stage: Stage, device: str, point: str, fs_type: str) -> None:
    """Have a mounted file system fill its device. Raises ``StorageFailedError``."""
    words = ("resize2fs", device) if fs_type == "ext4" else ("xfs_growfs", point)
    ended = await stage.run(*words)
    if not ended.ok:
        raise StorageFailedError(f"{device} cannot grow: {ended.said}")


async def _found(stage: Stage, device: str) -> str | None:
    """The type of the file system; empty for something else, ``None`` for nothing at all."""
    ended = await stage.run("blkid", "--probe", "--output", "export", device)
    if ended.code == _FOUND_NOTHING and not ended.text:
        return None
    if not ended.ok:
        said = ended.said or f"it ended with {ended.code}"
        raise StorageFailedError(f"{device}: blkid cannot tell what it holds: {said}")
    tags = dict(line.partition("=")[::2] for line in ended.text.splitlines())
    return tags.get("TYPE", "")
