"""In which order heartbeats were sent, whatever order they arrive in (field report N07).

Decided here: whether the statuses of a beat are newer than what is known, or dropped. A dropped
beat is still a sign of life: it is acknowledged, and the node's lease is renewed.

* A beat of the known boot counts if its sequence number is higher.
* A beat of a boot that a later one replaced is dropped, however late it comes.
* A beat of a boot not seen before counts: the agent was restarted.
* Where the node registered with a boot id, only that boot gets here, and it is the last one.
* Beats without a boot id go by their time: up to a minute older than the last is late, and a
  larger step back is a clock that was set, so the beat counts (decisions §2.10).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from attrs import evolve, frozen

__all__ = ["CLOCK_CHANGE", "BeatMemory", "BeatOrder", "BeatVerdict", "begin_boot", "judge_beat"]

CLOCK_CHANGE = timedelta(seconds=60)
"""A beat older than the last by more than this is a clock change, not a late arrival."""
_REMEMBERED_BOOTS = 8


class BeatVerdict(StrEnum):
    """What to do with the statuses of a beat."""

    ACCEPT = "accept"
    STALE = "stale"
    """Acknowledge, renew the lease, drop the statuses, count ``stale_heartbeats``."""


@frozen
class BeatOrder:
    """What a beat says of its place: all of it, or less with older agents."""

    boot_id: str = ""
    sequence: int = 0
    sent_at: datetime | None = None


@frozen
class BeatMemory:
    """The newest accepted beat of a node, and the boots that ended before it, newest first."""

    last: BeatOrder = BeatOrder()
    ended_boots: tuple[str, ...] = ()


def begin_boot(memory: BeatMemory | None, boot_id: str) -> BeatMemory:
    """What to remember once the node is registered with ``boot_id``, whatever was before."""
    if memory is None:
        return BeatMemory(BeatOrder(boot_id))
    if memory.last.boot_id == boot_id:
        return memory
    begun = _remembered(memory, BeatOrder(boot_id))
    return evolve(begun, ended_boots=tuple(b for b in begun.ended_boots if b != boot_id))


def judge_beat(memory: BeatMemory | None, beat: BeatOrder) -> tuple[BeatVerdict, BeatMemory]:
    """Whether ``beat`` counts, and what to remember. ``memory`` is None before the first beat."""
    if memory is None:
        return BeatVerdict.ACCEPT, BeatMemory(beat)
    if _is_stale(memory, beat):
        return BeatVerdict.STALE, memory
    return BeatVerdict.ACCEPT, _remembered(memory, beat)


def _is_stale(memory: BeatMemory, beat: BeatOrder) -> bool:
    if not beat.boot_id:
        return _is_late(memory.last.sent_at, beat.sent_at)
    if beat.boot_id == memory.last.boot_id:
        return beat.sequence <= memory.last.sequence
    return beat.boot_id in memory.ended_boots


def _is_late(last: datetime | None, sent_at: datetime | None) -> bool:
    if last is None or sent_at is None:
        return False
    return timedelta(0) < last - sent_at <= CLOCK_CHANGE


def _remembered(memory: BeatMemory, beat: BeatOrder) -> BeatMemory:
    # A boot without an id cannot be recognised later, so it is not worth remembering.
    ended = memory.last.boot_id
    if not ended or ended == beat.boot_id:
        return evolve(memory, last=beat)
    boots = (ended, *(boot for boot in memory.ended_boots if boot != ended))
    return BeatMemory(beat, boots[:_REMEMBERED_BOOTS])
