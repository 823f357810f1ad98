"""Waiting until a node is empty.

Decided here: when a drain is done, when it is stuck, and how long a stuck one is borne with: what
has no other place now may get one a moment later, while others move. Nothing is given up by ending
to wait; the scheduler goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.client import Client
from persysctl.errors import CtlError, RefusedError

__all__ = ["DrainEnd", "DrainLook", "judge_drain", "wait_for_drain"]

PATIENCE_SECONDS = 5.0
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_GROWTH = 1.6


class DrainEnd(Enum):
    """How a drain stands, and at the end how the waiting ended."""

    EMPTY = auto()
    BLOCKED = auto()
    """Nothing moves, and no other node takes what is left."""
    ENDED = auto()
    """Nobody drains the node any more."""
    NOT_YET = auto()


@dataclass(frozen=True, slots=True)
class DrainLook:
    """What was seen last; ``trouble`` says why nothing new was."""

    end: DrainEnd = DrainEnd.NOT_YET
    progress: pb.GetDrainProgressResponse = field(default_factory=pb.GetDrainProgressResponse)
    trouble: str = ""


def judge_drain(progress: pb.GetDrainProgressResponse, *, draining: bool) -> DrainEnd:
    """How a drain stands. What is stopped at a deadline by force blocks nothing for ever."""
    if not draining:
        return DrainEnd.ENDED
    if not progress.remaining and not progress.moving:
        return DrainEnd.EMPTY
    will_be_stopped = progress.force and progress.HasField("deadline_at")
    all_blocked = len(progress.blocked) >= progress.remaining > 0
    if all_blocked and not progress.moving and not will_be_stopped:
        return DrainEnd.BLOCKED
    return DrainEnd.NOT_YET


async def wait_for_drain(
    client: Client,
    node_id: str,
    seconds: float,
    tell: Callable[[DrainLook], None] = lambda _: None,
    patience: float = PATIENCE_SECONDS,
) -> DrainLook:
    """Look until the node is empty, nobody drains it, or it was stuck for ``patience`` seconds.

    ``tell`` hears of every look. After ``seconds`` the last look is the answer.
    """
    latest = DrainLook(trouble="nothing was heard of it")

    def note(look: DrainLook) -> None:
        nonlocal latest
        latest = look
        tell(look)

    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await _follow(client, node_id, note, patience)
    return latest


async def _follow(
    client: Client, node_id: str, note: Callable[[DrainLook], None], patience: float
) -> None:
    clock = asyncio.get_running_loop().time
    pause, seen_draining = _FIRST_PAUSE, False
    last, stuck_since = DrainLook(), clock()
    while True:
        look = await _look(client, node_id, last)
        # Another replica may not have heard of the drain yet.
        seen_draining |= look.end is not DrainEnd.ENDED and not look.trouble
        if look.end is not DrainEnd.BLOCKED:
            stuck_since = clock()
        note(look)
        match look.end:
            case DrainEnd.EMPTY:
                return
            case DrainEnd.ENDED if seen_draining:
                return
            case DrainEnd.BLOCKED if clock() - stuck_since >= patience:
                return
        last = look
        await asyncio.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)


async def _look(client: Client, node_id: str, last: DrainLook) -> DrainLook:
    """One look; a scheduler that cannot answer just now is looked at again."""
    try:
        node, progress = await asyncio.gather(
            client.node(node_id), client.operations.drain_progress(node_id)
        )
    except CtlError as error:
        if isinstance(error, RefusedError) and not error.retryable:
            raise
        return DrainLook(DrainEnd.NOT_YET, last.progress, str(error).splitlines()[0])
    return DrainLook(judge_drain(progress, draining=node.node.draining), progress)
