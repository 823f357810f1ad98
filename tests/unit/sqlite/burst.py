"""Writes a ledger as fast as it can and says what was acknowledged, until it is killed.

Run as ``python -m tests.unit.sqlite.burst PATH NAME``; one line per acknowledged commit.
"""

import asyncio
import sys
from datetime import UTC, datetime

from persys_adapters.sqlite.cluster_store import SqliteClusterStore
from persys_core.model.resources import Resources
from persys_core.model.workload import Allocation, Assignment
from persys_core.ports.cluster_store import Commit, Committed, Expectation, Key, Put

AT = datetime(2026, 1, 1, tzinfo=UTC)
SHARE = Resources.of(cpu_millicores=100)


async def place(store: SqliteClusterStore, node_id: str, name: str) -> None:
    """Charge one workload after the other to one node, each in one commit with its assignment."""
    ledger_key = Key.allocation(node_id)
    for number in range(1_000_000):
        found = (await store.get([ledger_key]))[ledger_key]
        ledger = found.value if found is not None else Allocation(node_id)
        assert isinstance(ledger, Allocation)
        workload_id = f"{name}-{node_id}-{number}"
        assignment = Assignment(workload_id, "", node_id, SHARE, "", AT)
        writes = (
            Put(ledger_key, ledger.charge(SHARE)),
            Put(Key.assignment(workload_id), assignment),
        )
        expects = (Expectation(ledger_key, revision=found.revision if found else 0),)
        result = await store.commit(Commit(expects, writes, workload_id))
        assert isinstance(result, Committed)
        sys.stdout.write(f"{workload_id} {result.revision}\n")
        sys.stdout.flush()


async def main(path: str, name: str) -> None:
    """Write to several nodes at once, so that commits share a write to disk."""
    store = await SqliteClusterStore.open(path, history=50)
    async with asyncio.TaskGroup() as group:
        for node in range(6):
            group.create_task(place(store, f"n{node}", name))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
