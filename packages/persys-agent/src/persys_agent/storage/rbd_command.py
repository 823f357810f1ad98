"""The commands of Ceph's block devices, and how their answers are read.

Decided here: the words of each command, and that exit codes, which are numbers of errno, tell
*absent* and *in use* from failures.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from attrs import frozen

from persys_agent.commands import CommandResult
from persys_agent.settings import NodeSettings
from persys_agent.storage.port import StorageFailedError
from persys_agent.storage.stage import Stage

__all__ = ["Image", "RbdCommand"]

T = TypeVar("T")


@frozen
class Image:
    """An image of the pool. ``size_bytes`` is what it was made with."""

    size_bytes: int


class RbdCommand:
    """``rbd``, with the cluster, the user and the pool of the settings."""

    def __init__(self, settings: NodeSettings, stage: Stage) -> None:
        self._pool = settings.storage_ceph_pool
        self._stage = stage
        self._options = tuple(_options(settings))

    def image_name(self, key: str) -> str:
        """``pool/image``."""
        return f"{self._pool}/{key}"

    async def check(self) -> str:
        """Why the pool cannot be listed; empty where it can."""
        ended = await self._run("ls", self._pool)
        return "" if ended.ok else ended.said or f"rbd ended with {ended.code}"

    async def info(self, key: str) -> Image | None:
        """The image, or ``None`` where the cluster says that there is none."""
        ended = await self._run("info", "--format", "json", self.image_name(key))
        if ended.code == errno.ENOENT:
            return None
        return Image(_read(self._good(ended, key), lambda found: int(found["size"])))

    async def create(self, key: str, size_gb: int) -> None:
        """Make an image that kernels can map: they know fewer features than the cluster."""
        features = ("--image-feature", "layering", "--image-feature", "exclusive-lock")
        words = ("create", "--size", f"{size_gb}G", *features, self.image_name(key))
        self._good(await self._run(*words), key)

    async def grow(self, key: str, size_gb: int) -> None:
        """Make an image larger; without ``--allow-shrink`` nothing can get lost."""
        size = f"{size_gb}G"
        self._good(await self._run("resize", "--size", size, self.image_name(key)), key)

    async def remove(self, key: str) -> None:
        """Remove an image; absent is fine."""
        ended = await self._run("rm", "--no-progress", self.image_name(key))
        if ended.code != errno.ENOENT:
            self._good(ended, key)

    async def device_of(self, key: str) -> str:
        """Where the image is mapped on this host; empty where it is not."""
        ended = await self._run("device", "list", "--format", "json")
        entries = _read(self._good(ended, key), _entries)
        return next(
            (device for pool, name, device in entries if (pool, name) == (self._pool, key)), ""
        )

    async def map(self, key: str, *, read_only: bool) -> str:
        """Map an image; the device. One to be written holds the image's lock: it cannot be written
        to from another host, and the mapping fails where it is."""
        flag = "--read-only" if read_only else "--exclusive"
        ended = self._good(await self._run("device", "map", flag, self.image_name(key)), key)
        if not ended.text.startswith("/dev/"):
            raise StorageFailedError(f"{self.image_name(key)}: rbd map named no device")
        return ended.text.splitlines()[-1].strip()

    async def unmap(self, key: str, device: str) -> None:
        """Let go of a device."""
        self._good(await self._run("device", "unmap", device), key)

    async def _run(self, *words: str) -> CommandResult:
        return await self._stage.run("rbd", *self._options, *words)

    def _good(self, ended: CommandResult, key: str) -> CommandResult:
        if ended.ok:
            return ended
        busy = "is in use: " if ended.code == errno.EBUSY else ""
        raise StorageFailedError(
            f"{self.image_name(key)}: {busy}{ended.said or f'rbd ended with {ended.code}'}"
        )


def _options(settings: NodeSettings) -> Iterator[str]:
    for flag, value in (
        ("--cluster", settings.storage_ceph_cluster),
        ("--id", settings.storage_ceph_user.removeprefix("client.")),
        ("--keyring", settings.storage_ceph_keyring),
    ):
        if value:
            yield from (flag, value)


def _read(ended: CommandResult, take: Callable[[Any], T]) -> T:
    try:
        return take(json.loads(ended.stdout))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFailedError("rbd answered with something else than its JSON") from error


def _entries(found: Any) -> list[tuple[str, str, str]]:
    """Releases before Nautilus give a mapping by id instead of a list."""
    entries = found.values() if isinstance(found, dict) else found
    return [(str(each["pool"]), str(each["name"]), str(each["device"])) for each in entries]
