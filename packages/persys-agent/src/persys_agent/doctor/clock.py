"""What is looked at of time: whether this host keeps it, and how far it is from the scheduler's.

Decided here: the scheduler's clock is known where its HTTP server answers at the usual port of the
same host: each HTTP answer is dated, to the second. Where it does not, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import aiohttp

from persys_agent.commands import CommandError, Commands
from persys_agent.doctor.findings import Case, Finding, Verdict

__all__ = ["clock_offset", "compared", "look_at_clock"]

_PATIENCE = timedelta(seconds=3)
_MOST_OFFSET = timedelta(seconds=5)
_HALF = timedelta(milliseconds=500)
"""Dates are cut to the second, so they are half of one old on average."""
_SCHEDULER_HTTP_PORT = 8084
_ADVICE = "have both hosts keep time (chrony, systemd-timesyncd)"


async def look_at_clock(case: Case) -> AsyncIterator[Finding]:
    """Leases and certificates are compared with this host's clock."""
    if await _is_kept(case.commands) is False:
        found = "this host's clock is not synchronised"
        yield Finding("clock", Verdict.WARN, found, "start chrony or systemd-timesyncd")
    if case.settings.standalone:
        return
    host = case.settings.scheduler_addr.rpartition(":")[0]
    offset = await clock_offset(f"http://{host}:{_SCHEDULER_HTTP_PORT}/health")
    if offset is not None:
        yield compared(offset)


def compared(offset: timedelta) -> Finding:
    """What to say of this host's clock being ``offset`` ahead."""
    seconds = offset.total_seconds()
    found = f"{abs(seconds):.0f} s {'ahead of' if seconds >= 0 else 'behind'} the scheduler's"
    if abs(offset) > _MOST_OFFSET:
        return Finding("clock", Verdict.WARN, found, _ADVICE)
    return Finding("clock", Verdict.OK, found)


async def clock_offset(url: str) -> timedelta | None:
    """How far this host's clock is ahead of that of the server, to the second; ``None`` where it
    does not answer, or not with a date."""
    timeout = aiohttp.ClientTimeout(total=_PATIENCE.total_seconds())
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            dated = parsedate_to_datetime(answer.headers["Date"])
    except (aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError):
        return None
    return datetime.now(UTC) - dated - _HALF


async def _is_kept(commands: Commands) -> bool | None:
    """What systemd says of it; ``None`` where it is not asked here."""
    if not commands.find("timedatectl"):
        return None
    words = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
    try:
        ended = await commands.run(words, timeout=_PATIENCE)
    except CommandError:
        return None
    return {"yes": True, "no": False}.get(ended.text) if ended.ok else None
