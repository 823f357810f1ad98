"""EventStream: reading a Redis stream without ever skipping over what was trimmed meanwhile.

Decided here: how a gap is known. A reader that has come to an entry reads on *from* it, that entry
included: while it is still there, nothing behind it is missing, since a stream is trimmed from its
old end. One command, so it is exact.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

from attrs import frozen

from persys_adapters.redis.link import RedisLink
from persys_adapters.redis.trouble import RedisTroubleError, Trouble

__all__ = ["BEGINNING", "Entry", "EventStream", "Page", "is_before", "is_entry_id"]

BEGINNING = "0-0"
"""Before the first entry of any stream."""

PAGE = 500
_ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}\Z")
_FIELD = b"data"


def is_entry_id(text: str) -> bool:
    """Whether ``text`` can be the id of an entry."""
    return bool(_ENTRY_ID.match(text)) and all(int(part) < 2**64 for part in text.split("-"))


def is_before(one: str, other: str) -> bool:
    """Whether the entry ``one`` stands before ``other``; what is no id stands before all."""
    return _order(one) < _order(other)


def _order(text: str) -> tuple[int, int]:
    if not is_entry_id(text):
        return (0, 0)
    milliseconds, _, number = text.partition("-")
    return int(milliseconds), int(number)


@frozen
class Entry:
    """One entry and what stands in its field ``data``; empty where it has none."""

    id: str
    data: bytes


@frozen
class Page:
    """Entries in order. ``whole``: none is missing between where the reader was and the first."""

    entries: tuple[Entry, ...]
    whole: bool
    is_last: bool


class EventStream:
    """The stream ``key``, which is trimmed to about ``max_entries``."""

    def __init__(self, link: RedisLink, key: str, max_entries: int) -> None:
        self._link = link
        self._key = key
        self._max_entries = max_entries

    async def after(self, cursor: str, up_to: str = "+") -> Page:
        """The next entries behind ``cursor``, up to and with ``up_to``."""
        found = await self._range("XRANGE", cursor, up_to, PAGE + 1)
        is_last = len(found) <= PAGE
        if cursor == BEGINNING:
            return Page(found, not found or await self._is_untrimmed(), is_last)
        whole = bool(found) and found[0].id == cursor
        return Page(found[1:] if whole else found, whole, is_last)

    async def has(self, entry_id: str) -> bool:
        """Whether the entry is kept."""
        return bool(await self._range("XRANGE", entry_id, entry_id, 1))

    async def newest_first(self) -> AsyncIterator[Entry]:
        """Every entry, backwards."""
        bound, known = "+", ""
        while True:
            found = await self._range("XREVRANGE", bound, "-", PAGE + 1)
            for entry in found:
                if entry.id != known:
                    yield entry
            if len(found) <= PAGE:
                return
            bound = known = found[-1].id

    async def last_id(self) -> str:
        """The id of the last entry that was ever added; ``BEGINNING`` where the key is absent."""
        try:
            facts = await self._link.call("XINFO", "STREAM", self._key)
        except RedisTroubleError as error:
            if error.trouble is Trouble.REFUSED and "no such key" in str(error):
                return BEGINNING
            raise
        return _last_generated(facts)

    async def wait_beyond(self, cursor: str, wait: timedelta) -> None:
        """Wait until there is an entry behind ``cursor``, for ``wait`` at most."""
        block = int(wait.total_seconds() * 1000)
        await self._link.call(
            "XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", self._key, cursor
        )  # fmt: skip

    async def _range(self, command: str, start: str, end: str, count: int) -> tuple[Entry, ...]:
        reply = await self._link.call(command, self._key, start, end, "COUNT", count)
        return tuple(_entries(reply))

    async def _is_untrimmed(self) -> bool:
        """From before the first entry there is nothing to read on from."""
        length = await self._link.call("XLEN", self._key)
        return isinstance(length, int) and length < self._max_entries


def _entries(reply: object) -> list[Entry]:
    if not isinstance(reply, list):
        return []
    return [Entry(_text(id), _data(fields)) for id, fields in filter(None, reply)]


def _data(fields: object) -> bytes:
    value = fields.get(_FIELD) if isinstance(fields, Mapping) else None
    return value if isinstance(value, bytes) else b""


def _last_generated(facts: object) -> str:
    if isinstance(facts, Mapping):
        for name, value in facts.items():
            if _text(name) == "last-generated-id":
                return _text(value)
    return BEGINNING


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
