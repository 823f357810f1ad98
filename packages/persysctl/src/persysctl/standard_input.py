"""Standard input as bytes, without blocking the event loop or the end of the process.

Decided here: a terminal, a pipe and a socket are waited for by the event loop; a file, which never
lets anybody wait, is simply read. No thread is used: one that is stuck in a read would keep the
process from ending.
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TextIO

__all__ = ["chunks", "no_chunks"]

_CHUNK_BYTES = 32 * 1024


async def no_chunks() -> AsyncIterator[bytes]:
    """The input of a command that gets none."""
    nothing: tuple[bytes, ...] = ()
    for each in nothing:
        yield each


async def chunks(stream: TextIO) -> AsyncIterator[bytes]:
    """What comes in, as it comes, until its end."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:
        yield stream.read().encode()
        return
    while data := await _next(number):
        yield data


async def _next(number: int) -> bytes:
    """The next bytes; none at the end, or where there is nothing to read from any more."""
    with suppress(PermissionError):  # a regular file: always ready
        await _readable(number)
    await asyncio.sleep(0)
    try:
        return os.read(number, _CHUNK_BYTES)
    except OSError:
        return b""


async def _readable(number: int) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)
