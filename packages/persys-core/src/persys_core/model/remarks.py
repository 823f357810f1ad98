"""What is said of a workload that runs and is not well: it is restarted again and again, or its
health check fails. It does run, so its state does not say it.

Decided here: the words, for those who write them (agents) and those who know them again (the
scheduler), and when a remark that moves all the time is worth another write.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum

__all__ = [
    "RESTARTS_WITHIN",
    "Remark",
    "is_worth_a_write",
    "remark_of",
    "restarts_text",
    "unhealthy_text",
]

RESTARTS_WITHIN = timedelta(minutes=10)
"""How far back restarts are counted: one that is older says nothing of now."""
_FIRST_REFRESH = timedelta(seconds=60)
_NEXT_REFRESH = timedelta(minutes=5)
_RESTARTED = re.compile(r"\brestarted (?:once|\d+ times) in \d+ min\b")
# A statement of its own, so neither a part of a sentence nor of what a check wrote.
_UNHEALTHY = re.compile(r"(?:\A|[,;:=(])\s*unhealthy\s*(?:\Z|[,;:)])")


class Remark(StrEnum):
    """The kind, which is also the reason code that people see."""

    NONE = ""
    RESTARTING = "restarting"
    UNHEALTHY = "unhealthy"


def restarts_text(count: int, exit_code: int | None, last_words: str) -> str:
    """``restarted 7 times in 10 min, last exit 1: no such table``; empty for no restart."""
    if count <= 0:
        return ""
    often = "once" if count == 1 else f"{count} times"
    text = f"restarted {often} in {RESTARTS_WITHIN // timedelta(minutes=1)} min"
    if exit_code is not None:
        text += f", last exit {exit_code}"
    return f"{text}: {last_words}" if last_words else text


def unhealthy_text(output: str) -> str:
    """``unhealthy: connection refused``; ``output`` is what the check wrote last."""
    return f"unhealthy: {output}" if output else "unhealthy"


def remark_of(message: str) -> Remark:
    """Which remark an agent's message is; agents of other makes make none."""
    if _RESTARTED.search(message):
        return Remark.RESTARTING
    return Remark.UNHEALTHY if _UNHEALTHY.search(message) else Remark.NONE


def is_worth_a_write(
    recorded: str, recorded_at: datetime | None, message: str, now: datetime
) -> bool:
    """Whether ``message`` has to take the place of what was recorded of a workload that runs.

    News is a remark of another kind: the first is written at once, the next a minute later at the
    soonest. How often it was restarted and what its check wrote move all the time, and are written
    every five minutes at most. A steady workload is written never, whatever words its agent has
    for that.
    """
    if recorded == message:
        return False
    kind, known = remark_of(message), remark_of(recorded)
    if known is Remark.NONE:
        return kind is not Remark.NONE
    refresh = _NEXT_REFRESH if kind is known else _FIRST_REFRESH
    return recorded_at is None or now - recorded_at >= refresh
