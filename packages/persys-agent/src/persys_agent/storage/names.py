"""What volumes are called on a host.

Decided here: how the name of a volume becomes the name of a folder or an image (as agents in the
field do it), and which names are refused. Pure.
"""

from __future__ import annotations

import re

from persys_agent.storage.port import StorageFailedError
from persys_core.model.ids import WorkloadId, is_valid_id
from persys_core.model.spec import ManagedVolume

__all__ = ["checked_workload_id", "volume_key"]

_OTHER = re.compile(r"[^a-z0-9._-]")
_MOST = 200
"""A file name holds 255 bytes, and stage folders have the driver's name in front."""


def volume_key(volume: ManagedVolume) -> str:
    """The name in lower case, other characters than ``a-z 0-9 . _ -`` replaced by ``-``, outer
    ``-`` dropped. Raises ``StorageFailedError`` where nothing usable is left."""
    key = _OTHER.sub("-", volume.name.strip().lower()).strip("-")
    if not key or key.startswith("."):
        raise StorageFailedError(
            f"volume {volume.name!r}: the name has to hold a letter or a digit and not begin with a"
            " dot; name it otherwise"
        )
    if len(key) > _MOST:
        raise StorageFailedError(f"volume {volume.name[:40]!r}…: at most {_MOST} characters")
    return key


def checked_workload_id(workload_id: WorkloadId) -> WorkloadId:
    """The id, which becomes a folder. Raises ``StorageFailedError`` for one that must not."""
    if not is_valid_id(workload_id):
        raise StorageFailedError(f"{workload_id[:60]!r} is no id of a workload; no folder is made")
    return workload_id
