"""What is left of nodes that were removed: their ledger goes with the last share in it.

A node that is removed by force leaves work and owed deletes behind, whose shares stay in its ledger
until each is given back. Decided here: the commit that gives the last one back removes the record,
and does not leave an empty one for ever. Pure.
"""

from __future__ import annotations

from attrs import evolve

from persys_core.control.view import ClusterView
from persys_core.model.workload import Allocation
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Delete, Key, Put, Write

__all__ = ["without_empty_ledgers"]


def without_empty_ledgers(tx: Transaction, view: ClusterView) -> Transaction:
    """``tx``, with the empty ledger of a node that is gone removed instead of written.

    It loses where the node registers again meanwhile.
    """
    gone = [key for key in map(_emptied, tx.writes) if key and view.node(key.id) is None]
    for key in gone:
        tx = tx.expecting(Key.node(key.id), None)
        others = tuple(write for write in tx.writes if write.key != key)
        # Where there is no record, an empty one would only be made to be removed.
        removal = (Delete(key),) if view.allocation(key.id) is not None else ()
        tx = evolve(tx, writes=(*others, *removal))
    return tx


def _emptied(write: Write) -> Key | None:
    """The key of a ledger that ``write`` leaves without any share."""
    if not isinstance(write, Put) or not isinstance(write.value, Allocation):
        return None
    return write.key if write.value == Allocation(write.value.node_id) else None
