"""Ending a background task for certain.

Decided here: a task is cancelled until it has ended. The client library, and ``wait_for`` before
Python 3.12, now and then take a cancellation that comes while a connection is made for something
else, and go on.
"""

from __future__ import annotations

import asyncio

__all__ = ["end"]

_AGAIN_SECONDS = 0.2


async def end(task: asyncio.Task[None]) -> None:
    """Cancel ``task`` until it has ended; whatever it ended with is not of interest any more."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
