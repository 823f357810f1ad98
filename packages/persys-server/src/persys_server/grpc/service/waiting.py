"""Reads that wait until this replica is as new as the caller asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from persys_core.model.ids import StoreRevision
from persys_server.grpc.context import Context, seconds_left
from persys_server.grpc.errors import BehindError

__all__ = ["caught_up"]

T = TypeVar("T")

_SHARE = 0.8
"""Of the caller's time: the rest is left for the answer to say that it was not enough."""
_WITHOUT_DEADLINE = 10.0


async def caught_up(reading: Awaitable[T], at_least: StoreRevision, context: Context) -> T:
    """What ``reading`` answers; ``BehindError`` where the caller's time ends before it could."""
    if not at_least:
        return await reading
    remaining = seconds_left(context)
    limit = asyncio.timeout(_WITHOUT_DEADLINE if remaining is None else remaining * _SHARE)
    try:
        async with limit:
            return await reading
    except TimeoutError:
        if not limit.expired():
            raise
    raise BehindError(
        f"this replica has not seen store revision {at_least} yet; ask again, or ask another one"
    )
