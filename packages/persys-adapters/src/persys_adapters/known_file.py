"""A memory of the cluster in a small file, written by rename so that a crash leaves a whole one."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from persys_core.model.errors import PersysError
from persys_core.modes.evidence import Known, Witness
from persys_core.ports.cluster_store import Key, Kind

__all__ = ["KnownFile", "KnownFileError"]


class KnownFileError(PersysError):
    """The file cannot be read or written; the text says which, why and what to do."""


class KnownFile:
    """JSON with ``cluster_id``, ``backend_id``, ``revision``, ``nodes`` and ``epoch_base``;
    owner-only permissions. The last two are missing in files of older releases."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> Known | None:
        """What was saved last; None where there is no file. KnownFileError."""
        return await asyncio.to_thread(self._read)

    async def save(self, known: Known) -> None:
        """Replace the file. KnownFileError."""
        await asyncio.to_thread(self._write, known)

    def _read(self) -> Known | None:
        try:
            found = json.loads(self._path.read_text())
            return Known(
                str(found["cluster_id"]),
                str(found["backend_id"]),
                int(found["revision"]),
                tuple(map(str, found.get("nodes", ()))),
                int(found.get("epoch_base", 0)),
                int(found.get("rewound_to", 0)),
                tuple(
                    Witness(Key(Kind(kind), str(id_)), int(revision))
                    for kind, id_, revision in found.get("witnesses", ())
                ),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KnownFileError(
                f"cannot read what this replica knows of its cluster from {self._path}: {error};"
                " make the file readable, or remove it if the store is known to be the right one"
            ) from error

    def _write(self, known: Known) -> None:
        text = json.dumps(
            {
                "cluster_id": known.cluster_id,
                "backend_id": known.backend_id,
                "revision": known.revision,
                "nodes": known.nodes,
                "epoch_base": known.epoch_base,
                "rewound_to": known.rewound_to,
                "witnesses": [
                    (each.key.kind, each.key.id, each.revision) for each in known.witnesses
                ],
            }
        )
        new = self._path.with_suffix(".new")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError as error:
            raise KnownFileError(
                f"cannot write what this replica knows of its cluster to {self._path}: {error}"
            ) from error
