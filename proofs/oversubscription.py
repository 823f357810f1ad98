"""Many clients fill a cluster to the last CPU: `python -m proofs.oversubscription`.

Decided here: the course. Eight clients apply 2,000 equal workloads of one CPU through three
replicas onto machines that have exactly 2,000 CPUs. Over the whole history of etcd no node is above
its capacity, and all are placed and run in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
from attrs import define, field

from persys_core.model.workload import Assignment
from proofs.chaos.clients import Stub
from proofs.chaos.convergence import unfinished
from proofs.chaos.promises import Promises, image_of
from proofs.chaos.replicas import Replica
from proofs.chaos.rules_machines import Bounds
from proofs.chaos.stage import Size, Stage, staged
from tests.e2e.processes import client, container

__all__ = ["Filled", "Filling", "fill", "main"]

CPU = 1_000
CALL_SECONDS = 20.0
AGAIN_SECONDS = 0.1
_CONFLICTS = re.compile(r"^\w*commit_conflicts_total(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)


@define
class Filling:
    """How large it is: machines, CPUs of each, clients, replicas; ``bound`` in seconds."""

    nodes: int = 100
    cpus: int = 20
    clients: int = 8
    replicas: int = 3
    bound: float = 900.0

    @property
    def workloads(self) -> int:
        """Exactly as many as there is room for."""
        return self.nodes * self.cpus


@define
class Filled:
    """What came of it."""

    filling: Filling
    accepted_after: float = 0.0
    placed_after: float = 0.0
    run_after: float = 0.0
    placed: int = 0
    again: int = 0
    conflicts: float = 0.0
    revisions: int = 0
    broken: list[str] = field(factory=list)

    def figures(self) -> Iterator[tuple[str, float, str]]:
        """Names, values and units."""
        filling = self.filling
        yield "nodes", filling.nodes, "count"
        yield "workloads", filling.workloads, "count"
        yield "clients", filling.clients, "count"
        yield "replicas", filling.replicas, "count"
        yield "accepted_after", self.accepted_after, "s"
        yield "placed_after", self.placed_after, "s"
        yield "run_after", self.run_after, "s"
        yield "accepted_rate", filling.workloads / max(self.accepted_after, 1e-9), "1/s"
        yield "requests_sent_again", self.again, "count"
        yield "commit_conflicts", self.conflicts, "count"
        yield "revisions_looked_at", self.revisions, "count"
        yield "placed", self.placed, "count"
        yield "violations", len(self.broken), "count"


async def fill(folder: Path, filling: Filling) -> Filled:
    """The whole course."""
    size = Size(
        replicas=filling.replicas,
        nodes=filling.nodes,
        cpu=filling.cpus * CPU,
        ttl=15,
        grace=180,
        redis=False,
    )
    filled = Filled(filling)
    async with staged(folder, size) as (stage, _):
        began = time.monotonic()
        await asyncio.gather(
            *(_apply(number, stage, filling, filled) for number in range(filling.clients))
        )
        filled.accepted_after = time.monotonic() - began
        await _until_it_runs(stage, filled, began)
        counts = await asyncio.gather(*map(_conflicts, stage.replicas))
        filled.conflicts, filled.revisions = sum(counts), stage.observer.steps
        found = stage.observer.verdict(Bounds.of_seconds(size.grace))
        filled.broken += [each.describe(0) for each in found]
    return filled


async def _apply(number: int, stage: Stage, filling: Filling, filled: Filled) -> None:
    """One client's share, one request after the other, each through the next replica."""
    async with AsyncExitStack() as stack:
        stubs = [await stack.enter_async_context(client(each)) for each in stage.addresses]
        turns = itertools.count(number)
        for mine in range(number, filling.workloads, filling.clients):
            await _ask(f"w{mine}", stubs, turns, stage.observer.promises, filled)


async def _ask(
    workload_id: str, stubs: list[Stub], turns: Iterator[int], promises: Promises, filled: Filled
) -> None:
    """Apply one, again and again until it is known what became of it."""
    asking = promises.asks(workload_id, 1, datetime.now(UTC))
    wish = container(workload_id, image_of(1), cpu=CPU)
    answer = None
    while answer is None:
        stub = stubs[next(turns) % len(stubs)]
        try:
            answer = await stub.ApplyWorkload(wish, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError:
            promises.unknown(asking)
            filled.again += 1
            await asyncio.sleep(AGAIN_SECONDS)
    if answer.success:
        promises.accepted(asking, datetime.now(UTC))
    else:
        filled.broken.append(f"{workload_id} was refused: {answer.error_message}")


async def _until_it_runs(stage: Stage, filled: Filled, began: float) -> None:
    """Wait until everything is placed, and runs."""
    seen, wanted = stage.observer, filled.filling.workloads
    left: list[tuple[str, str]] = []
    while time.monotonic() - began < filled.filling.bound:
        filled.placed = sum(1 for _ in seen.picture.values(Assignment))
        if filled.placed == wanted:
            filled.placed_after = filled.placed_after or time.monotonic() - began
            left = list(unfinished(seen.picture, seen.timelines, seen.promises))
            if not left:
                filled.run_after = time.monotonic() - began
                return
        await asyncio.sleep(0.2)
    filled.broken.append(f"{filled.placed} of {wanted} are placed in {filled.filling.bound:g} s")
    filled.broken += [f"{workload_id}: {wrong}" for workload_id, wrong in left[:10]]


async def _conflicts(replica: Replica) -> float:
    """How many commits of a replica met another one's."""
    text = await replica.metrics()
    return sum(float(found) for found in _CONFLICTS.findall(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit code is 1 where anything did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cpus", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    given = parser.parse_args(arguments)
    filling = Filling(given.nodes, given.cpus, given.clients)
    with tempfile.TemporaryDirectory() as folder:
        filled = asyncio.run(fill(Path(folder), filling))
    for name, value, unit in filled.figures():
        print(f"oversubscription_{name} {value:.4g} {unit}")
    sys.stdout.flush()
    for sentence in filled.broken:
        print(f"does not hold: {sentence}", file=sys.stderr)
    return 1 if filled.broken else 0


if __name__ == "__main__":
    sys.exit(main())
