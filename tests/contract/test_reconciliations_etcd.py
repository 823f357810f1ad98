"""Reconcile outcomes that Redis cannot take, in a real etcd."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta

import pytest

from persys_adapters.etcd.client import EtcdClient, EtcdConfig, end_of_prefix
from persys_adapters.etcd.reconciliations import WAITING_AT_MOST, EtcdReconciliations

FACTS = {"action": "ApplyRunning", "success": "false", "reason": "no image", "attemptedAt": "t"}


async def _kept(client: EtcdClient, prefix: str, count: int) -> dict[str, tuple[str, int]]:
    """Wait for so many; what stands there, and on which lease."""
    start = prefix.encode()
    async with asyncio.timeout(20):
        while True:
            found = await client.range(start, end_of_prefix(start))
            if len(found.kvs) >= count:
                return {kv.key.decode(): (kv.value.decode(), kv.lease) for kv in found.kvs}
            await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_the_last_outcome_is_kept_for_a_while(etcd_config: EtcdConfig) -> None:
    """Under the reference's key, in its words, and on a lease: nothing stays for ever."""
    prefix = f"/outcomes-{uuid.uuid4().hex[:8]}"
    async with EtcdClient(etcd_config) as client:
        outcomes = EtcdReconciliations(client, ttl=timedelta(hours=1), prefix=prefix)
        outcomes.take("w", {**FACTS, "action": "Inquire"})
        outcomes.take("w", FACTS)
        outcomes.start()
        try:
            kept = await _kept(client, prefix, 1)
        finally:
            await outcomes.aclose()
        [(path, (text, lease))] = kept.items()
        assert path == f"{prefix}/reconciliation/w"
        assert json.loads(text) == {
            "workloadId": "w",
            "action": "ApplyRunning",
            "success": False,
            "reason": "no image",
            "attemptedAt": "t",
        }
        assert lease
        await client.lease_revoke(lease)
        assert (await client.range(path.encode())).kvs == ()


@pytest.mark.asyncio
async def test_an_etcd_that_is_away_costs_nobody_anything(etcd_config: EtcdConfig) -> None:
    """Taking never waits, and what waits is bounded."""
    async with EtcdClient(EtcdConfig(("127.0.0.1:1",))) as client:
        outcomes = EtcdReconciliations(client, ttl=timedelta(hours=1))
        outcomes.start()
        for number in range(WAITING_AT_MOST * 2):
            outcomes.take(f"w{number}", FACTS)
        assert len(outcomes._waiting) == WAITING_AT_MOST
        await outcomes.aclose()
