"""What happened in a simulated run, line by line: for people, for replay and for its fingerprint.

Decided here: which lines are kept (the last few of each subject), and that two runs are the same
when their lines are. Lines come from the watcher; nothing reads them to decide anything.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable

from attrs import frozen

from persys_core.ports.clock import Clock

__all__ = ["History", "Line", "clock_text"]

KEPT_PER_SUBJECT = 60


@frozen
class Line:
    """One thing that happened, at ``seconds`` of simulated time; ``subjects`` are ids."""

    serial: int
    seconds: float
    kind: str
    subjects: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{clock_text(self.seconds)} {self.kind:<8} {' '.join(self.subjects)} {self.text}"


class History:
    """Append-only. ``traced``: lines about these subjects also go to ``sink`` at once."""

    def __init__(
        self,
        clock: Clock,
        *,
        traced: Iterable[str] = (),
        sink: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._traced = frozenset(traced)
        self._sink = sink
        self._digest = hashlib.sha256()
        self._recent: dict[str, deque[Line]] = {}
        self.length = 0

    def add(
        self, kind: str, subjects: tuple[str, ...], text: str, *, seconds: float | None = None
    ) -> None:
        """Something happened now, or at ``seconds`` where it is only learnt of now."""
        at = self._clock.monotonic() if seconds is None else seconds
        line = Line(self.length, at, kind, subjects, text)
        self.length += 1
        self._digest.update(f"{at:.6f}|{kind}|{subjects}|{text}\n".encode())
        for subject in subjects:
            self._recent.setdefault(subject, deque(maxlen=KEPT_PER_SUBJECT)).append(line)
        if self._sink is not None and not self._traced.isdisjoint(subjects):
            self._sink(str(line))

    def fingerprint(self) -> str:
        """Equal for two runs in which the same things happened in the same order."""
        return self._digest.hexdigest()[:16]

    def tail(self, subjects: Iterable[str]) -> list[str]:
        """The last lines about any of ``subjects``, in order."""
        lines = {line.serial: line for each in subjects for line in self._recent.get(each, ())}
        return [str(lines[serial]) for serial in sorted(lines)[-KEPT_PER_SUBJECT:]]


def clock_text(seconds: float) -> str:
    """Simulated seconds as ``h:mm:ss.mmm``."""
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}.{milliseconds:03}"
