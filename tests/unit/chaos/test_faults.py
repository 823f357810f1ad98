"""The faults of a chaos run follow from its seed alone."""

from __future__ import annotations

from proofs.chaos.faults import FaultKind, plan
from proofs.chaos.stage import Size


def test_a_seed_gives_the_same_faults() -> None:
    """Each run of a seed, and another seed others."""
    size = Size()

    one, again, other = (list(plan(seed, 60, size)) for seed in (1, 1, 2))

    assert one == again
    assert one != other
    assert [fault.at for fault in one] == sorted(fault.at for fault in one)
    assert all(0 < fault.at < 60 for fault in one)


def test_every_kind_comes() -> None:
    """In a long run; without Redis nothing happens to it."""
    kinds = {fault.kind for fault in plan(3, 1200, Size())}
    without = {fault.kind for fault in plan(3, 1200, Size(redis=False))}

    assert kinds == set(FaultKind)
    assert without == kinds - {FaultKind.REDIS_KILL}


def test_pauses_are_shorter_and_longer_than_the_lease() -> None:
    """A replica that is stopped briefly must keep its lead, one stopped for long has lost it."""
    size = Size(ttl=3, grace=20)
    lengths = {
        kind: [fault.length for fault in plan(5, 3000, size) if fault.kind is kind]
        for kind in FaultKind
    }

    assert max(lengths[FaultKind.REPLICA_PAUSE_SHORT]) < size.ttl
    assert min(lengths[FaultKind.REPLICA_PAUSE_LONG]) > size.ttl
    assert max(lengths[FaultKind.NODE_PAUSE]) > size.grace > min(lengths[FaultKind.NODE_PAUSE])
    assert max(lengths[FaultKind.AGENTS_PAUSE]) < size.grace
