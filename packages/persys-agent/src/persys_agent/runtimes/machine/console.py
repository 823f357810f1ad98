"""The console of a machine, read from the file that its serial port is written to.

Decided here: how much of it is ever read or kept. A tail reads one megabyte from the end at most; a
line longer than 64 KB is cut into several; a file above its limit is emptied (its writer appends).
Following looks at the file four times a second, since it may be another program that writes it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from attrs import define, field

from persys_agent.runtimes.port import LogLine

__all__ = ["console_lines", "limit_console"]

_TAIL_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_POLL_SECONDS = 0.25


async def console_lines(
    path: Path,
    *,
    tail: int,
    follow: bool,
    is_running: Callable[[], Awaitable[bool]],
    poll_seconds: float = _POLL_SECONDS,
) -> AsyncIterator[LogLine]:
    """The last ``tail`` lines, then with ``follow`` those to come until the machine ends.

    A file that is not there (yet) is empty. Raises ``OSError`` where it may not be read.
    """
    reader = _Reader(path)
    for text in await asyncio.to_thread(reader.last_lines, tail, follow):
        yield _line(text)
    while follow:
        # Asked before reading: what was written until the end is read after the end is seen.
        goes_on = await is_running()
        while (texts := await asyncio.to_thread(reader.next_lines)) is not None:
            for text in texts:
                yield _line(text)
        if not goes_on:
            break
        await asyncio.sleep(poll_seconds)
    if follow and reader.rest:
        yield _line(reader.rest)


def limit_console(path: Path, max_bytes: int) -> bool:
    """Empty a console file that has grown above ``max_bytes``; says whether it did."""
    try:
        if path.stat().st_size <= max_bytes:
            return False
        os.truncate(path, 0)
    except FileNotFoundError:
        return False
    return True


def _line(text: bytes) -> LogLine:
    return LogLine(text.decode(errors="replace").rstrip("\r"), stream="console")


@define
class _Reader:
    """Reads on where it stopped, also after the file was emptied or replaced."""

    path: Path
    rest: bytes = b""
    _offset: int = 0
    _inode: int = field(default=0)

    def last_lines(self, count: int, keep_rest: bool) -> list[bytes]:
        """The last ``count`` lines; an unfinished one is among them unless the rest is kept."""
        content = self._read_from_end()
        *lines, self.rest = content.split(b"\n")
        if self.rest and not keep_rest:
            lines.append(self.rest)
        return lines[-count:] if count else []

    def next_lines(self) -> list[bytes] | None:
        """Lines that have been finished since, in one chunk; ``None`` where nothing was written."""
        content = self._read_on()
        if not content:
            return None
        *lines, self.rest = (self.rest + content).split(b"\n")
        if len(self.rest) > _CHUNK_BYTES:
            lines.append(self.rest)
            self.rest = b""
        return lines

    def _read_from_end(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                start = max(0, status.st_size - _TAIL_BYTES)
                file.seek(start)
                content = file.read(_TAIL_BYTES)
        except FileNotFoundError:
            return b""
        self._inode, self._offset = status.st_ino, start + len(content)
        # The first line may be cut where reading began.
        return content.partition(b"\n")[2] if start else content

    def _read_on(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._inode, self._offset = status.st_ino, 0
                file.seek(self._offset)
                content = file.read(_CHUNK_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(content)
        return content
