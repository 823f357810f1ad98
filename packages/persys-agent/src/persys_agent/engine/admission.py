"""Whether a workload fits on this node: by what is asked and what was promised, never by how busy
the host happens to be at the moment (agent defect 25)."""

from __future__ import annotations

from attrs import frozen

from persys_core.model.resources import DISK, Resources, unit_of

__all__ = ["Room", "decide_admission"]


@frozen
class Room:
    """What the node has, what its host keeps for itself, and what was promised to others."""

    capacity: Resources
    reserved: Resources
    promised: Resources


def decide_admission(requested: Resources, room: Room) -> str:
    """Why the request is refused, with the numbers; empty where it is admitted.

    Disk counts only where the node knows how much it has.
    """
    free = room.capacity - room.reserved - room.promised
    refused = [
        _shortfall(name, requested, free, room)
        for name in requested.shortfalls(free)
        if name != DISK or room.capacity.disk_gb
    ]
    return "; ".join(refused)


def _shortfall(name: str, requested: Resources, free: Resources, room: Room) -> str:
    return (
        f"insufficient {name}: it asks for {requested.get(name)} {unit_of(name)},"
        f" {max(0, free.get(name))} are free of {room.capacity.get(name)}"
        f" ({room.reserved.get(name)} kept for the host,"
        f" {room.promised.get(name)} promised to other workloads)"
    )
