"""Coordination records that nobody can read: they can be made anew, so they are removed.

Unlike what stands of nodes and work, which is never overwritten where it cannot be read.
"""

from __future__ import annotations

from persys_core.control.committer import Committer
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import (
    COORDINATION,
    Committed,
    Conflict,
    Delete,
    Expectation,
    Key,
)
from persys_core.ports.membership import Leadership

__all__ = ["clear_unreadable"]


async def clear_unreadable(
    committer: Committer,
    leadership: Leadership,
    key: Key,
    tx: Transaction,
    result: Committed | Conflict,
) -> bool:
    """Remove what stands at ``key`` if ``tx`` expected nothing there and lost, although nothing
    that can be read is there; whether that was so."""
    assert key.kind in COORDINATION, "this is a bug: other records are left as they are"
    expected_none = Expectation(key, revision=0) in tx.expects
    unreadable = isinstance(result, Conflict) and result.current.get(key) is None
    if not (expected_none and unreadable):
        return False
    await committer.commit(Transaction(writes=(Delete(key),)), leadership)
    return True
