"""A commit whose outcome nobody told has three answers: done, not done, lost (E06)."""

from collections.abc import Iterable
from enum import Enum, auto

import pytest

from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.contract import KvRead, Txn, TxnResult
from persys_adapters.kv.dict_kv import DictKv
from persys_core.model.workload import Allocation
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    Committed,
    Conflict,
    Delete,
    Guarantee,
    Key,
    Put,
    StoreUnavailableError,
)
from persys_core.testing.cluster_store_backend import commit_of, expect, put, read

pytestmark = pytest.mark.slow

KEY, FIRST, SECOND = Key.allocation("n1"), Allocation("n1"), Allocation("n1", workload_count=2)


class Fault(Enum):
    LOST_REQUEST = auto()
    LOST_ANSWER = auto()


class FaultyKv(DictKv):
    """Fails the next transactions in the listed ways; ``meanwhile`` is done after the first."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__()
        self.faults = list(faults)
        self.meanwhile: list[Txn] = []
        self.reads_fail = False
        self.sent = 0

    async def txn(self, txn: Txn) -> TxnResult:
        self.sent += 1
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.LOST_REQUEST:
            await self._do_meanwhile()
            raise AmbiguousCommitError("no answer")
        result = await super().txn(txn)
        if fault is Fault.LOST_ANSWER:
            await self._do_meanwhile()
            raise AmbiguousCommitError("no answer")
        return result

    async def get(self, keys: Iterable[bytes]) -> KvRead:
        if self.reads_fail:
            raise StoreUnavailableError("no answer either")
        return await super().get(keys)

    async def _do_meanwhile(self) -> None:
        while self.meanwhile:
            await super().txn(self.meanwhile.pop(0))


def store_on(kv: FaultyKv) -> KvClusterStore:
    return KvClusterStore(kv, Guarantee.CAS | Guarantee.WATCH)


@pytest.mark.asyncio
async def test_done_is_found_by_the_token() -> None:
    """A commit that was applied though the answer was lost is a success, done once."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults, kv.sent = [Fault.LOST_ANSWER], 0
    result = await store.commit(commit_of(Put(KEY, SECOND), expects=[expect(KEY, before)]))
    assert result == Committed(before + 1)
    assert kv.sent == 1
    assert await store.probe() == before + 1


@pytest.mark.asyncio
async def test_not_done_is_tried_again() -> None:
    """A commit that never arrived is sent again and then done once."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults, kv.sent = [Fault.LOST_REQUEST], 0
    result = await store.commit(commit_of(Put(KEY, SECOND), expects=[expect(KEY, before)]))
    assert result == Committed(before + 1)
    assert kv.sent == 2
    found = await read(store, KEY)
    assert found is not None
    assert found.value == SECOND


@pytest.mark.asyncio
async def test_another_writer_is_a_conflict() -> None:
    """Where another one wrote meanwhile, the commit is lost and overwrites nothing."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults = [Fault.LOST_REQUEST]
    kv.meanwhile = [Txn(puts=((b"/persys/allocations/n1", b'{"nodeId":"n1"}'),))]
    commit = commit_of(Put(KEY, SECOND), expects=[expect(KEY, before)])
    result = await store.commit(commit)
    assert isinstance(result, Conflict)
    assert result.current == await store.get([KEY])
    assert (await store.probe()) == before + 1


@pytest.mark.asyncio
async def test_done_and_overwritten_is_a_conflict() -> None:
    """Where ours was applied and then overwritten, the caller decides anew."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults = [Fault.LOST_ANSWER]
    kv.meanwhile = [Txn(puts=((b"/persys/allocations/n1", b'{"nodeId":"n1"}'),))]
    result = await store.commit(commit_of(Put(KEY, SECOND), expects=[expect(KEY, before)]))
    assert isinstance(result, Conflict)


@pytest.mark.asyncio
@pytest.mark.parametrize("fault", Fault)
async def test_a_removal_is_done_when_it_is_gone(fault: Fault) -> None:
    """A commit that only removes is done when the key is absent, whoever removed it."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults = [fault]
    result = await store.commit(commit_of(Delete(KEY), expects=[expect(KEY, before)]))
    assert isinstance(result, Committed)
    assert await read(store, KEY) is None


@pytest.mark.asyncio
async def test_a_late_first_attempt_is_ours() -> None:
    """Where every answer is lost but the commit was applied, it is still told as done, once."""
    kv = FaultyKv()
    store = store_on(kv)
    before = await put(store, KEY, FIRST)
    kv.faults = [Fault.LOST_REQUEST, Fault.LOST_REQUEST, Fault.LOST_ANSWER]
    result = await store.commit(commit_of(Put(KEY, SECOND), expects=[expect(KEY, before)]))
    assert result == Committed(before + 1)


@pytest.mark.asyncio
async def test_without_an_answer_it_stays_open() -> None:
    """Where reading back fails too, or nothing ever arrives, the error says that it is open."""
    kv = FaultyKv(Fault.LOST_ANSWER)
    kv.reads_fail = True
    store = store_on(kv)
    with pytest.raises(AmbiguousCommitError):
        await store.commit(commit_of(Put(KEY, FIRST), expects=[expect(KEY, 0)]))
    deaf = store_on(FaultyKv(*[Fault.LOST_REQUEST] * 10))
    with pytest.raises(AmbiguousCommitError):
        await deaf.commit(commit_of(Put(KEY, FIRST), expects=[expect(KEY, 0)]))
    assert await deaf.probe() == 0
