"""How much is used, without walking trees in this process.

Decided here: du(1) counts, since it can be ended; a tree that changes meanwhile is counted as far
as it was seen.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

from persys_agent.commands import Commands
from persys_agent.storage.port import VolumeUse

__all__ = ["filesystem_use", "folder_use"]


async def folder_use(commands: Commands, folder: Path, timeout: timedelta) -> int | None:
    """Bytes that the folder takes up on its own file system; ``None`` where it is absent.

    Raises ``CommandError``. du ends with 1 where a file went away; what it counted stands.
    """
    words = ("du", "--summarize", "--one-file-system", "--block-size=1", "--", str(folder))
    ended = await commands.run(words, timeout=timeout)
    first = ended.text.partition("\t")[0]
    return int(first) if first.isascii() and first.isdigit() else None


def filesystem_use(point: Path) -> VolumeUse:
    """Use of the whole file system mounted at ``point``. Blocks; raises ``OSError``."""
    found = shutil.disk_usage(point)
    return VolumeUse(found.used, found.total)
