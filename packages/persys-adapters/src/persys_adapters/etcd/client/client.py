"""The client: everything that etcd is asked, in one place.

Decided here: what each call looks like. How it reaches etcd is decided in ``calls``, how a watch
goes on in ``watch``, how leases are kept in ``leases``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Iterable
from datetime import timedelta
from types import TracebackType

from persys_adapters.etcd.client import rpc_pb2 as pb
from persys_adapters.etcd.client.calls import Caller
from persys_adapters.etcd.client.config import EtcdConfig, address_of
from persys_adapters.etcd.client.errors import LeaseExistsError, LeaseLostError
from persys_adapters.etcd.client.leases import KeepAlives
from persys_adapters.etcd.client.values import (
    Alarm,
    AlarmKind,
    Compare,
    DeleteResult,
    GetKey,
    Lease,
    LeaseStatus,
    Member,
    MemberStatus,
    Operation,
    Put,
    PutResult,
    RangeResult,
    TxnResult,
)
from persys_adapters.etcd.client.watch import Watch
from persys_adapters.etcd.client.wire import (
    ALARM,
    COMPACT,
    DEFRAGMENT,
    DELETE,
    LEASE_GRANT,
    LEASE_REVOKE,
    LEASE_TTL,
    MEMBER_LIST,
    RANGE,
    RANGE_LOCAL,
    STATUS,
    TXN,
    TXN_READ,
    range_result,
    txn_request,
    txn_result,
)

__all__ = ["EtcdClient"]

_PAGE_SIZE = 10_000
_LARGEST_LEASE_ID = 2**63 - 1
_DEFRAGMENT_TIMEOUT = timedelta(seconds=60)


class EtcdClient:
    """An asyncio client of one etcd cluster; made inside a running loop, used in that loop.

    Every call raises `EtcdError` and nothing else, takes at most the configured call timeout, and
    is tried on other endpoints within it as far as that is safe (see ``calls``).

    Size: a facade, one method for each thing that etcd can be asked.
    """

    def __init__(self, config: EtcdConfig) -> None:
        """Connect when first used. `ValueError`: the TLS files cannot be used."""
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._caller = Caller(config)
        self._keep_alives = KeepAlives(self._caller, config)
        self._watches: set[Watch] = set()

    async def __aenter__(self) -> EtcdClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End every watch and close the connections; leases are left to run out."""
        for watch in tuple(self._watches):
            await watch.aclose()
        await self._keep_alives.aclose()
        await self._caller.aclose()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints as ``host:port``."""
        return self._caller.pool.addresses

    async def range(
        self,
        key: bytes,
        range_end: bytes = b"",
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        serializable: bool = False,
    ) -> RangeResult:
        """Read a key, or the keys from ``key`` up to ``range_end``, in order.

        ``serializable`` asks the member alone: it answers without a quorum, and may be behind.
        """
        request = pb.RangeRequest(
            key=key,
            range_end=range_end,
            limit=limit,
            revision=revision,
            keys_only=keys_only,
            serializable=serializable,
        )
        method = RANGE_LOCAL if serializable else RANGE
        return range_result(await self._caller.unary(method, request))

    async def pages(
        self, key: bytes, range_end: bytes, *, page_size: int = _PAGE_SIZE, revision: int = 0
    ) -> AsyncGenerator[RangeResult, None]:
        """The keys from ``key`` up to ``range_end`` in pages, all as of one revision, which is each
        page's ``revision``; at least one page. `CompactedError`: it was compacted meanwhile."""
        while True:
            page = await self.range(key, range_end, limit=page_size, revision=revision)
            revision = revision or page.revision
            yield RangeResult(revision, page.cluster_id, page.kvs, page.more, page.count)
            if not page.more:
                return
            key = page.kvs[-1].key + b"\x00"

    async def txn(
        self,
        compares: Iterable[Compare],
        success: Iterable[Operation],
        failure: Iterable[Operation] = (),
    ) -> TxnResult:
        """If all ``compares`` hold do ``success``, else ``failure``, in one step.

        `AmbiguousWriteError`, and any error whose ``maybe_applied`` is true: nobody knows. One that
        only reads is tried again as any read is.
        """
        success, failure = tuple(success), tuple(failure)
        reads = all(isinstance(each, GetKey) for each in (*success, *failure))
        request = txn_request(compares, success, failure)
        return txn_result(await self._caller.unary(TXN_READ if reads else TXN, request))

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> PutResult:
        """Write a key whatever it was. Fails like `txn`."""
        done = await self.txn((), (Put(key, value, lease),))
        return PutResult(done.revision, done.cluster_id)

    async def delete(self, key: bytes, range_end: bytes = b"") -> DeleteResult:
        """Delete a key, or those up to ``range_end``. Fails like `txn`.

        This works without space too; some releases, 3.5.1 among them, refuse even a transaction of
        deletes while their file is larger than the quota.
        """
        request = pb.DeleteRangeRequest(key=key, range_end=range_end)
        done = await self._caller.unary(DELETE, request)
        return DeleteResult(done.header.revision, done.header.cluster_id, done.deleted)

    def watch(
        self,
        key: bytes,
        range_end: bytes = b"",
        start_revision: int = 0,
        *,
        idle_timeout: timedelta | None = None,
    ) -> Watch:
        """Every change of the keys from ``start_revision`` on; with 0, from when etcd has it."""
        idle = self._config.watch_idle_timeout if idle_timeout is None else idle_timeout
        watch = Watch(
            self._caller, key, range_end, start_revision, idle_timeout=idle.total_seconds()
        )
        self._watches.add(watch)
        watch.on_end(self._watches.discard)
        return watch

    async def lease_grant(self, ttl_seconds: int, lease_id: int = 0) -> Lease:
        """A lease of at least ``ttl_seconds``. The deadline counts from now, before it is sent.

        `LeaseExistsError`: ``lease_id`` is taken. With 0 an id is chosen here, so that the request
        may be repeated.
        """
        began = self._loop.time()
        wanted = lease_id or secrets.randbelow(_LARGEST_LEASE_ID) + 1
        try:
            answer = await self._caller.unary(
                LEASE_GRANT, pb.LeaseGrantRequest(ttl=ttl_seconds, id=wanted)
            )
        except LeaseExistsError:
            if lease_id:
                raise
            # Nobody else has this id: an earlier attempt of this call came through.
            return Lease(wanted, ttl_seconds, began + ttl_seconds)
        return Lease(answer.id, answer.ttl, began + answer.ttl)

    async def keep_alive(self, lease_id: int) -> float:
        """Renew a lease; the new deadline, counted from the sending of what was answered.

        `LeaseLostError`: it is gone. All renewals of a client share one stream.
        """
        return await self._keep_alives.renew(lease_id)

    async def lease_revoke(self, lease_id: int) -> bool:
        """End a lease and delete its keys; false if it was gone already."""
        try:
            await self._caller.unary(LEASE_REVOKE, pb.LeaseRevokeRequest(id=lease_id))
        except LeaseLostError:
            return False
        return True

    async def lease_time_to_live(self, lease_id: int, *, keys: bool = False) -> LeaseStatus:
        """What is left of a lease, and its keys if asked for. `LeaseLostError`: it is gone."""
        request = pb.LeaseTimeToLiveRequest(id=lease_id, keys=keys)
        answer = await self._caller.unary(LEASE_TTL, request)
        if answer.ttl < 0:
            raise LeaseLostError(f"lease {lease_id:x} is gone")
        return LeaseStatus(answer.id, answer.ttl, answer.granted_ttl, tuple(answer.keys))

    async def compact(self, revision: int, *, physical: bool = False) -> None:
        """Forget what was before ``revision``; ``physical`` waits until it is off the disk.

        `CompactedError`: it was compacted already.
        """
        request = pb.CompactionRequest(revision=revision, physical=physical)
        await self._caller.unary(COMPACT, request)

    async def status(self, endpoint: str | None = None) -> MemberStatus:
        """What a member says of itself: that of ``endpoint``, or the one that is used now."""
        pool = self._caller.pool
        asked = pool.named(address_of(endpoint)) if endpoint else pool.choose()
        answer = await self._caller.unary(STATUS, pb.StatusRequest(), at=asked)
        return MemberStatus(
            endpoint=asked.address,
            cluster_id=answer.header.cluster_id,
            member_id=answer.header.member_id,
            version=answer.version,
            db_size=answer.db_size,
            db_size_in_use=answer.db_size_in_use,
            leader=answer.leader,
            raft_index=answer.raft_index,
            raft_term=answer.raft_term,
            errors=tuple(answer.errors),
            revision=answer.header.revision,
            is_learner=answer.is_learner,
        )

    async def alarms(self) -> tuple[Alarm, ...]:
        """The alarms that stand."""
        answer = await self._caller.unary(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET))
        kinds = {int(kind) for kind in AlarmKind}
        return tuple(
            Alarm(each.member_id, AlarmKind(each.alarm))
            for each in answer.alarms
            if int(each.alarm) in kinds
        )

    async def disarm(self, alarm: Alarm) -> None:
        """Take an alarm back; one that does not stand is no error."""
        request = pb.AlarmRequest(
            action=pb.AlarmRequest.DEACTIVATE,
            member_id=alarm.member_id,
            alarm=pb.AlarmType.ValueType(alarm.kind),
        )
        await self._caller.unary(ALARM, request)

    async def member_list(self) -> tuple[Member, ...]:
        """The members of the cluster, as the member that is asked knows them."""
        answer = await self._caller.unary(MEMBER_LIST, pb.MemberListRequest())
        return tuple(
            Member(
                each.id, each.name, tuple(each.client_urls), tuple(each.peer_urls), each.is_learner
            )
            for each in answer.members
        )

    async def defragment(self, endpoint: str, *, timeout: timedelta = _DEFRAGMENT_TIMEOUT) -> None:
        """Give freed space of one member back to its disk; it answers nothing meanwhile."""
        asked = self._caller.pool.named(address_of(endpoint))
        seconds = timeout.total_seconds()
        await self._caller.unary(DEFRAGMENT, pb.DefragmentRequest(), timeout=seconds, at=asked)
