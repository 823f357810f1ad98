"""Reconcile outcomes in etcd, while Redis cannot take them: the documented fallback.

Decided here: that nobody waits for them, that only the last one of a workload counts, and that they
end by themselves: a lease bounds their life, so that a workload that is deleted in the same moment
leaves nothing for ever. They are copies for people; what is lost here is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import structlog

from persys_adapters.etcd.client import EtcdClient, EtcdError, Lease, Put
from persys_adapters.records.reconciliations import RECONCILIATION_FOLDER, reconciliation_json
from persys_core.model.ids import WorkloadId

__all__ = ["EtcdReconciliations"]

WAITING_AT_MOST = 10_000
_log = structlog.stdlib.get_logger("persys_adapters.etcd.reconciliations")


class EtcdReconciliations:
    """``start`` it, and ``aclose`` it before its client. ``ttl``: how long an outcome is kept."""

    def __init__(self, client: EtcdClient, *, ttl: timedelta, prefix: str = "") -> None:
        self._client = client
        self._ttl = ttl
        self._folder = prefix + RECONCILIATION_FOLDER
        self._waiting: dict[WorkloadId, Mapping[str, str]] = {}
        self._bell = asyncio.Event()
        self._lease: Lease | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._task = asyncio.create_task(self._write(), name="reconcile outcomes to etcd")

    async def aclose(self) -> None:
        """Write no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def take(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        """Keep this as the workload's last outcome; never waits and never raises."""
        if workload_id in self._waiting or len(self._waiting) < WAITING_AT_MOST:
            self._waiting[workload_id] = facts
            self._bell.set()

    async def _write(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            while self._waiting:
                workload_id = next(iter(self._waiting))
                facts = self._waiting.pop(workload_id)
                try:
                    await self._put(workload_id, facts)
                except EtcdError as error:
                    self._lease = None  # it may be gone; the next outcome gets a new one
                    _log.debug("a reconcile outcome is lost", reason=str(error))

    async def _put(self, workload_id: WorkloadId, facts: Mapping[str, str]) -> None:
        lease = await self._current_lease()
        key = (self._folder + workload_id).encode()
        await self._client.txn([], [Put(key, reconciliation_json(workload_id, facts), lease.id)])

    async def _current_lease(self) -> Lease:
        """One for all; a new one in the second half of its life, so that each is kept for some."""
        now, half = asyncio.get_running_loop().time(), self._ttl.total_seconds() / 2
        if self._lease is None or self._lease.deadline - now < half:
            self._lease = await self._client.lease_grant(max(1, round(self._ttl.total_seconds())))
        return self._lease
