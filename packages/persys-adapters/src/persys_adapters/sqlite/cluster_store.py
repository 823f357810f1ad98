"""ClusterStore in one SQLite file: the embedded, durable store of a single replica."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Self

from persys_adapters.kv.cluster_store import KvClusterStore, UnreadableCallback, ignore
from persys_adapters.sqlite.file import HISTORY, SqliteFile
from persys_adapters.sqlite.kv import SqliteKv
from persys_adapters.sqlite.thread import SqlThread
from persys_core.ports.cluster_store import Guarantee

__all__ = ["SqliteClusterStore"]


class SqliteClusterStore(KvClusterStore):
    """Made by ``open``. A commit is answered when it is on disk, and survives any crash then."""

    def __init__(self, kv: SqliteKv, on_unreadable: UnreadableCallback = ignore) -> None:
        super().__init__(kv, Guarantee.CAS | Guarantee.WATCH | Guarantee.DURABLE, on_unreadable)
        self._file = kv

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        history: int = HISTORY,
        on_unreadable: UnreadableCallback = ignore,
    ) -> Self:
        """Open the file at ``path``, or make it; ``history`` revisions are kept for watchers.

        Raises StoreUnavailableError with what to do: another process has it (and which), it is
        damaged, it is not ours, it may not be written to.
        """
        thread = SqlThread(partial(SqliteFile, Path(path), history))
        await thread.start()
        return cls(SqliteKv(thread), on_unreadable)

    async def forget_history(self) -> None:
        """Forget every change up to now; watchers that are behind get a Resync."""
        await self._file.compact()

    async def aclose(self) -> None:
        """Finish what was begun and close the file; closing twice is no error."""
        await self._file.aclose()
