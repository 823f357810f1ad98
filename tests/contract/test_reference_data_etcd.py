"""Data of the reference in a real etcd: every layout, record by record."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, end_of_prefix
from persys_adapters.etcd.kv import EtcdKv
from persys_adapters.kv.cluster_store import KvClusterStore
from persys_adapters.kv.contract import Txn
from persys_adapters.kv.dict_kv import DictKv
from persys_core.ports.cluster_store import Guarantee
from tests.corpus import reference_etcd as reference
from tests.unit.kv.test_layouts import commits_come_out

GUARANTEES = Guarantee.CAS | Guarantee.WATCH | Guarantee.SHARED


@asynccontextmanager
async def opened(config: EtcdConfig) -> AsyncIterator[EtcdKv]:
    """A part of the server under a random prefix, which is removed afterwards."""
    prefix = f"/persys-corpus-{uuid.uuid4().hex[:12]}".encode()
    async with EtcdClient(config) as client:
        try:
            yield EtcdKv(client, prefix)
        finally:
            await client.delete(prefix, end_of_prefix(prefix))


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(3))
async def test_commits_come_out_as_in_memory(etcd_config: EtcdConfig, seed: int) -> None:
    """Comparisons across both layouts are etcd's own, and its watch tells the moves."""
    async with opened(etcd_config) as kv:
        await commits_come_out(kv, seed)


@pytest.mark.asyncio
async def test_the_corpus_is_read_as_in_memory(etcd_config: EtcdConfig) -> None:
    """The same records, the same quarantine, whatever order the keys come in."""
    memory = DictKv()
    puts = tuple(reference.corpus().items())
    await memory.txn(Txn(puts=puts))
    wanted = await KvClusterStore(memory, GUARANTEES).snapshot()
    async with opened(etcd_config) as kv:
        for start in range(0, len(puts), 50):
            await kv.txn(Txn(puts=puts[start : start + 50]))
        found = await KvClusterStore(kv, GUARANTEES).snapshot()
    assert {key: each.value for key, each in found.records.items()} == {
        key: each.value for key, each in wanted.records.items()
    }
    assert set(found.quarantined) == set(wanted.quarantined) == set(reference.QUARANTINED)
    assert found.unreadable == wanted.unreadable
