"""What a driver provides on this host: which volumes, how large, and who uses each.

Decided here: how that is kept (one small file per volume, replaced as a whole, so that it survives
the agent), and when a volume may not be used: two names that become one, another kind of use, or an
exclusive volume that another workload has. Never consulted for whether something is mounted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from attrs import evolve, frozen

from persys_agent.storage.port import StorageFailedError
from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ManagedVolume

__all__ = ["Attachment", "Ledger", "VolumeRecord", "admitted", "is_exclusive", "without"]

_SHARED_MODES = frozenset({"readwritemany", "readonlymany", "rwx", "rox"})
_SUFFIX = ".json"


@frozen
class Attachment:
    """A workload's use of a volume."""

    workload_id: WorkloadId
    exclusive: bool


@frozen
class VolumeRecord:
    """A volume on this host. ``name`` is as the spec has it; sizes in GiB."""

    key: str
    name: str
    size_gb: int = 0
    as_device: bool = False
    attachments: tuple[Attachment, ...] = ()


def is_exclusive(volume: ManagedVolume) -> bool:
    """Whether one workload of this host may have it at a time: unless it is only read, or its
    access mode says that it is shared (defect 38: data is never shared silently)."""
    mode = volume.access_mode.replace("-", "").replace("_", "").strip().lower()
    return not volume.read_only and mode not in _SHARED_MODES


def admitted(
    record: VolumeRecord | None,
    key: str,
    volume: ManagedVolume,
    workload_id: WorkloadId,
    as_device: bool,
) -> VolumeRecord:
    """The record with this use in it. Raises ``StorageFailedError`` where it may not be."""
    attachment = Attachment(workload_id, is_exclusive(volume))
    if record is None:
        return VolumeRecord(key, volume.name, volume.size_gb, as_device, (attachment,))
    others = tuple(each for each in record.attachments if each.workload_id != workload_id)
    _check_name(record, volume)
    _check_kind(record, volume, as_device, others)
    _check_exclusive(volume, attachment, others)
    return evolve(
        record,
        size_gb=max(record.size_gb, volume.size_gb),
        as_device=as_device,
        attachments=(*others, attachment),
    )


def without(record: VolumeRecord, workload_id: WorkloadId) -> VolumeRecord:
    """The record once the workload no longer uses the volume."""
    left = tuple(each for each in record.attachments if each.workload_id != workload_id)
    return evolve(record, attachments=left)


def _check_name(record: VolumeRecord, volume: ManagedVolume) -> None:
    if record.name.strip() != volume.name.strip():
        raise StorageFailedError(
            f"volume {volume.name!r}: is {record.key} on this host, and so is volume"
            f" {record.name!r}; name one of them otherwise"
        )


def _check_kind(
    record: VolumeRecord, volume: ManagedVolume, as_device: bool, others: tuple[Attachment, ...]
) -> None:
    if others and record.as_device != as_device:
        used = "a disk of a machine" if record.as_device else "a folder"
        raise StorageFailedError(
            f"volume {volume.name!r}: workload {others[0].workload_id} uses it as {used}; the two"
            " uses cannot be had at once"
        )


def _check_exclusive(
    volume: ManagedVolume, attachment: Attachment, others: tuple[Attachment, ...]
) -> None:
    holder = next((each for each in others if each.exclusive or attachment.exclusive), None)
    if holder is not None:
        raise StorageFailedError(
            f"volume {volume.name!r}: workload {holder.workload_id} has it; delete that first, or"
            " give both the access mode ReadWriteMany to share it"
        )


class Ledger:
    """The records of one driver, one file each in ``folder``. Blocks shortly on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str) -> VolumeRecord | None:
        """The volume's record. Raises ``StorageFailedError`` where it cannot be read: a volume of
        which nothing is known must not be given to a second workload."""
        path = self._path(key)
        try:
            return _record(key, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StorageFailedError(
                f"{path} cannot be read; see what volume {key} is used for, and remove the file"
            ) from error

    def put(self, record: VolumeRecord) -> None:
        """Keep the record, whole or not at all. Raises ``OSError``."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged = self._folder / f".{record.key}"
        with staged.open("w", encoding="utf-8") as file:
            file.write(_text(record))
            file.flush()
            os.fsync(file.fileno())
        staged.replace(self._path(record.key))

    def drop(self, key: str) -> None:
        """Forget the volume. Raises ``OSError``."""
        self._path(key).unlink(missing_ok=True)

    def all(self) -> Iterator[VolumeRecord]:
        """Every record, by name."""
        for path in sorted(self._folder.glob(f"[!.]*{_SUFFIX}")):
            record = self.get(path.name.removesuffix(_SUFFIX))
            if record is not None:
                yield record

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


def _text(record: VolumeRecord) -> str:
    return json.dumps(
        {
            "name": record.name,
            "size_gb": record.size_gb,
            "as_device": record.as_device,
            "attachments": [
                {"workload_id": each.workload_id, "exclusive": each.exclusive}
                for each in record.attachments
            ],
        }
    )


def _record(key: str, text: str) -> VolumeRecord:
    found = json.loads(text)
    return VolumeRecord(
        key=key,
        name=str(found["name"]),
        size_gb=int(found["size_gb"]),
        as_device=bool(found["as_device"]),
        attachments=tuple(
            Attachment(str(each["workload_id"]), bool(each["exclusive"]))
            for each in found["attachments"]
        ),
    )
