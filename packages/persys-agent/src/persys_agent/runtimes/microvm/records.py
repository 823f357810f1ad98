"""The folder of a microVM: what has to be known of it after the agent was restarted.

Decided here: one folder for each workload id of the host (named by a digest, since a socket lies in
it and an id may be long), mode 0700, with ``machine.json`` saying whose it is. The folder is made
with ``mkdir``, so of two agents one only gets it; what another agent owns is never read further.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import attrs
from attrs import evolve, field, frozen

from persys_agent.runtimes.microvm.process import ProcessId
from persys_agent.runtimes.port import Order, Owner
from persys_core.model.ids import RevisionId, WorkloadId

__all__ = ["Ending", "MachineFolder", "Record", "folder_of", "folders"]

_RECORD = "machine.json"


@frozen
class Ending:
    """How it ended; ``code`` is ``None`` where an earlier agent's child ended."""

    code: int | None
    at: datetime
    was_asked: bool = False


@frozen
class Record:
    """A machine. ``requests`` are the API's, in the order in which they are made; ``is_complete``
    tells a machine from one that was being made when the agent ended; ``is_stopping``, that its
    process is being ended by us."""

    owner: Owner
    workload_id: WorkloadId
    revision_id: RevisionId
    spec_hash: str
    instance_id: str
    is_complete: bool = False
    requests: tuple[tuple[str, Mapping[str, object]], ...] = ()
    taps: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(factory=dict, hash=False)
    process: ProcessId | None = None
    started_at: datetime | None = None
    is_stopping: bool = False
    ending: Ending | None = None

    @classmethod
    def begun(cls, order: Order, owner: Owner) -> Record:
        """One that is about to be made."""
        name = order.workload_id
        key = f"{owner.cluster_id}/{owner.node_id}/{name}/{order.revision_id}"
        instance_id = hashlib.sha256(key.encode()).hexdigest()[:32]
        return cls(owner, name, order.revision_id, order.spec_hash, instance_id)


@frozen
class MachineFolder:
    """``path`` may not exist."""

    path: Path

    @property
    def socket(self) -> Path:
        """Of Firecracker's API."""
        return self.path / "api.sock"

    @property
    def console(self) -> Path:
        """What the serial port (and Firecracker itself) wrote."""
        return self.path / "console.log"

    def read(self) -> Record | None:
        """The machine; ``None`` where there is none. Raises ``OSError``, ``ValueError``."""
        try:
            text = (self.path / _RECORD).read_text()
        except FileNotFoundError:
            return None
        return _record(json.loads(text))

    def write(self, record: Record) -> None:
        """Write it down, whole or not at all. Raises ``OSError``."""
        part = self.path / f"{_RECORD}.{threading.get_ident()}.part"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(_document(record), file)
            file.flush()
            os.fsync(descriptor)
        part.replace(self.path / _RECORD)

    def make(self, record: Record) -> bool:
        """Take the folder for ``record``; ``False`` where it is taken. Raises ``OSError``."""
        self.path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        self.write(record)
        return True

    def delete(self) -> None:
        """Remove it. Nothing is ever mounted in it, and it holds links to nowhere else."""
        # The record goes last, so that what is cut off here is still known to be ours.
        for path in self.path.glob("*"):
            if path.name != _RECORD:
                path.unlink()
        shutil.rmtree(self.path, ignore_errors=True)


def folder_of(state_dir: Path, workload_id: WorkloadId) -> MachineFolder:
    """The folder of a workload, whatever characters its id has."""
    digest = hashlib.sha256(workload_id.encode()).hexdigest()[:16]
    return MachineFolder(state_dir / digest)


def folders(state_dir: Path) -> Iterator[MachineFolder]:
    """All of them, whosever they are."""
    with suppress(FileNotFoundError):
        for path in sorted(state_dir.iterdir()):
            yield MachineFolder(path)


def _document(record: Record) -> dict[str, object]:
    return attrs.asdict(record, value_serializer=_plain)


def _plain(_instance: object, _field: object, value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _record(document: dict[str, object]) -> Record:
    """Raises ``ValueError`` where it is no record of ours."""
    match document:
        case {
            "owner": {"node_id": str(node), "cluster_id": str(cluster)},
            "workload_id": str(name),
            "revision_id": str(revision),
            "spec_hash": str(spec_hash),
            "instance_id": str(instance_id),
            "is_complete": bool(is_complete),
            "requests": list(requests),
            "taps": list(taps),
            "metadata": dict(metadata),
        }:
            record = Record(
                Owner(node, cluster),
                name,
                revision,
                spec_hash,
                instance_id,
                is_complete,
                tuple((str(path), dict(body)) for path, body in requests),
                tuple(map(str, taps)),
                {str(key): str(value) for key, value in metadata.items()},
            )
            return evolve(
                record,
                process=_process(document.get("process")),
                is_stopping=document.get("is_stopping") is True,
                started_at=_instant(document.get("started_at")),
                ending=_ending(document.get("ending")),
            )
        case _:
            raise ValueError("no record of a microVM")


def _process(document: object) -> ProcessId | None:
    match document:
        case {"pid": int(pid), "started": int(started)}:
            return ProcessId(pid, started)
        case _:
            return None


def _ending(document: object) -> Ending | None:
    match document:
        case {"code": code, "at": str(at), "was_asked": bool(was_asked)}:
            known = code if isinstance(code, int) else None
            return Ending(known, datetime.fromisoformat(at), was_asked)
        case _:
            return None


def _instant(text: object) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if isinstance(text, str) else None
