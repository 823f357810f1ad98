"""What can be wrong with Redis, and how often that is said.

Decided here: the closed list of troubles (they are label values), and that a log gets one line a
minute at most, however long an outage lasts (field report K04).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

import structlog
from attrs import define, field

from persys_core.model.errors import PersysError
from persys_core.ports.clock import Clock

__all__ = ["Lost", "RedisTroubleError", "Trouble", "TroubleLog", "advice_for"]

_WINDOW = timedelta(seconds=60)

_log = structlog.stdlib.get_logger("persys_adapters.redis")


class Trouble(StrEnum):
    """Why Redis did not do what it was asked."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    FULL = "full"
    DENIED = "denied"
    NO_DATABASE = "no_database"
    UNSAVED = "unsaved"
    REFUSED = "refused"


class Lost(StrEnum):
    """Why something was not written in the end."""

    QUEUE_FULL = "queue_full"
    REFUSED = "refused"
    STOPPED = "stopped"
    BUG = "bug"


_ADVICE = {
    Trouble.UNREACHABLE: "check that Redis runs, and REDIS_ADDR or REDIS_SENTINELS",
    Trouble.TIMEOUT: "check the load of Redis and the way to it",
    Trouble.FULL: "raise maxmemory of Redis, or let it evict (volatile-ttl)",
    Trouble.DENIED: "check REDIS_USERNAME, REDIS_PASSWORD and the rights of that user",
    Trouble.NO_DATABASE: "set REDIS_DB to one that this Redis has: 0 to 15, unless its setting"
    " databases says otherwise, and only 0 in a Redis cluster",
    Trouble.UNSAVED: "Redis takes no writes while it cannot save to its disk; its own log says why:"
    " make room there, or let it write to its folder (its setting dir)",
    Trouble.REFUSED: "see the reason; a key may be of another kind",
}


def advice_for(error: Exception) -> str:
    """What can be done about it."""
    trouble = error.trouble if isinstance(error, RedisTroubleError) else Trouble.UNREACHABLE
    return _ADVICE[trouble]


class RedisTroubleError(PersysError):
    """Redis did not answer, or answered with an error; what was asked may still have been done."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        self.trouble = trouble
        super().__init__(f"Redis: {trouble}: {text}")


@define(eq=False)
class TroubleLog:
    """Says what is wrong and that it is over, one line a minute at most."""

    _clock: Clock
    _about: str
    _said_at: float | None = field(default=None, init=False)
    _lost: int = field(default=0, init=False)
    _is_open: bool = field(default=False, init=False)

    def lost(self, number: int, why: str) -> None:
        """So many were given up; the number comes with the next line."""
        self._lost += number
        self._say(lambda: _log.warning("some are not in Redis", about=self._about, reason=why,
                                       lost=self._taken()))  # fmt: skip

    def troubled(self, error: RedisTroubleError) -> None:
        """It does not work now."""
        self._is_open = True
        self._say(lambda: _log.warning("Redis does not do its part; nothing else is affected",
                                       about=self._about, reason=str(error),
                                       advice=_ADVICE[error.trouble],
                                       lost=self._taken()))  # fmt: skip

    def works(self) -> None:
        """It works; said where trouble was said, and only once the minute is over."""
        if self._is_open and self._say(
            lambda: _log.info("Redis works again", about=self._about, lost=self._taken())
        ):
            self._is_open = False

    def _say(self, line: Callable[[], object]) -> bool:
        now = self._clock.monotonic()
        if self._said_at is not None and now - self._said_at < _WINDOW.total_seconds():
            return False
        self._said_at = now
        line()
        return True

    def _taken(self) -> int:
        taken, self._lost = self._lost, 0
        return taken
