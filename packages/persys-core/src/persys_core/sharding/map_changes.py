"""The next version of the map, from who is there. Pure.

Decided here: that every replica that is there is a member, and how much of the past the map keeps:
all versions that a replica may still act by.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from persys_core.model.replica import InstanceId, ShardMap

__all__ = ["next_map"]


def next_map(
    current: ShardMap | None,
    present: Collection[InstanceId],
    acknowledged: Mapping[InstanceId, int],
) -> ShardMap | None:
    """The map that follows, or ``None`` where the present one is right.

    ``acknowledged``: by each replica the version that it acknowledged; those that are not there
    any more do not count.
    """
    members = tuple(sorted(present))
    known = [acknowledged[each] for each in members if each in acknowledged]
    if current is None:
        # A map that was lost may have been acknowledged before: the next one is no older.
        return ShardMap(max(known, default=0) + 1, members) if members else None
    if current.members == members:
        return None
    oldest = min(known, default=current.version)
    past = tuple(each for each in (*current.earlier, current.current) if each.version >= oldest)
    return ShardMap(current.version + 1, members, past)
