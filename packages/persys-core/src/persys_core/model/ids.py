"""Identifiers: their alphabet, their limits and the aliases under which signatures name them.

Decided here: which new id is acceptable. Not decided here: what happens to records with odd ids
that another scheduler wrote; those stay readable and deletable (the record layer sees to it).
"""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = [
    "MAX_ID_LENGTH",
    "NodeId",
    "RevisionId",
    "StoreRevision",
    "WorkloadId",
    "is_valid_id",
]

NodeId: TypeAlias = str
WorkloadId: TypeAlias = str
RevisionId: TypeAlias = str
"""The revision of a workload's spec: a content hash, the same for the same spec."""
StoreRevision: TypeAlias = int
"""The revision of the cluster store; grows by one with every commit, 0 means *does not exist*."""

MAX_ID_LENGTH = 253
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\Z")


def is_valid_id(text: str) -> bool:
    """Whether ``text`` may name a new node or workload.

    1 to 253 characters of ``A-Z a-z 0-9 . _ -``, the first one a letter or a digit
    (decisions, values: ids).
    """
    return _ID.match(text) is not None
