"""How often containers were started again lately by the Engine's own restart policy.

Decided here: what is remembered of a container between two looks. The Engine counts restarts over a
container's life and does not say when they were, and it forgets how the last run ended as soon as
the container runs again. That is asked for when the count moves, so that a container that is well
costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from attrs import Factory, define

from persys_agent.runtimes.docker.documents import Document, instant, number, text
from persys_agent.runtimes.docker.states import LastWords, exit_code, last_line, secrets
from persys_core.model.remarks import RESTARTS_WITHIN, restarts_text
from persys_core.model.secrets import scrubbed

__all__ = ["RestartWatch"]

_REMEMBERED = 10_000
_ASKS = 3
"""How often the last end is asked for: the Engine counts a restart before it notes the rest."""

LastExit = Callable[[str, datetime, datetime], Awaitable[int | None]]
"""The code of a container's end that was between these instants, if that is still known."""
WordsBefore = Callable[[str, datetime], Awaitable[LastWords]]
"""What a container wrote last before this instant."""


@define
class _Known:
    count: int
    restarts: deque[tuple[datetime, int]] = Factory(deque)
    exit_code: int | None = None
    last_words: str = ""
    asks_left: int = 0

    def lately(self, now: datetime) -> int:
        while self.restarts and self.restarts[0][0] <= now - RESTARTS_WITHIN:
            self.restarts.popleft()
        return sum(count for _, count in self.restarts)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class RestartWatch:
    """The restarts of one Engine's containers. ``now``: this machine's clock."""

    def __init__(
        self,
        last_exit: LastExit,
        words_before: WordsBefore,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._last_exit = last_exit
        self._words_before = words_before
        self._now = now
        self._containers: OrderedDict[str, _Known] = OrderedDict()

    async def remark(self, shown: Document, words: LastWords) -> str:
        """What there is to say of the container's restarts; empty where there were none lately.
        ``words``: its last, where it has ended and was not started again yet."""
        container, count, now = text(shown, "Id"), number(shown, "RestartCount"), self._now()
        known = self._containers.pop(container, None)
        if known is None:
            known, new = _Known(count), _lately_at_first_sight(shown, count, now)
        else:
            # The count begins anew where somebody started the container.
            new = count - known.count if count >= known.count else count
            known.count = count
        self._remember(container, known)
        if new > 0:
            known.restarts.append((now, new))
            known.asks_left = _ASKS
        if known.asks_left:
            code, words = await self._ending(container, shown, words)
            known.asks_left = known.asks_left - 1 if code is None else 0
            if not known.asks_left:
                known.exit_code = code
        if words.lines:
            known.last_words = last_line(scrubbed(words.lines, secrets(shown)))
        if known.asks_left and known.exit_code is None:
            return ""  # half a remark would stand for minutes; the next look knows the rest
        return restarts_text(known.lately(now), known.exit_code, known.last_words)

    async def _ending(
        self, container: str, shown: Document, words: LastWords
    ) -> tuple[int | None, LastWords]:
        """How its last run ended, whether or not it runs again."""
        code = exit_code(shown)
        ended_at = instant(shown, "State", "FinishedAt")
        started_at = instant(shown, "State", "StartedAt")
        if code is not None or ended_at is None or started_at is None:
            return code, words
        code = await self._last_exit(container, ended_at, started_at)
        # What the new run writes first may bear a moment before the start that the Engine notes,
        # and what the last one wrote a moment after its end: the wait in between parts them.
        between = ended_at + (started_at - ended_at) / 2
        return code, await self._words_before(container, between)

    def _remember(self, container: str, known: _Known) -> None:
        self._containers[container] = known
        while len(self._containers) > _REMEMBERED:
            self._containers.popitem(last=False)


def _lately_at_first_sight(shown: Document, count: int, now: datetime) -> int:
    """How many of its restarts were lately; what is not known to have been is left out."""
    made_at, since = instant(shown, "Created"), now - RESTARTS_WITHIN
    if made_at is not None and made_at > since:
        return count
    moments = (instant(shown, "State", "StartedAt"), instant(shown, "State", "FinishedAt"))
    is_recent = any(each is not None and each > since for each in moments)
    return min(count, 1) if is_recent else 0
