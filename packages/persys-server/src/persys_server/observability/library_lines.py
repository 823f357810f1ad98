"""Lines of a library that repeats itself, thinned out before they are written.

Decided here: which library that is, and how often one line of it is worth reading.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ["LibraryLines"]

_LIBRARY = "opentelemetry"
_EVERY_SECONDS = 60.0
_KINDS_MAX = 200


class LibraryLines(logging.Filter):
    """Lets a line of OpenTelemetry through once a minute; the next one says how many were not.

    A collector that is away would otherwise fill the log. Two lines are the same when their texts
    without the values are. ``clock`` counts seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether ``record`` is to be written."""
        if record.name.partition(".")[0] != _LIBRARY:
            return True
        kind = (record.name, str(record.msg))
        now = self._clock()
        since, left_out = self._seen.get(kind, (now - _EVERY_SECONDS, 0))
        if now < since + _EVERY_SECONDS:
            self._seen[kind] = (since, left_out + 1)
            return False
        if len(self._seen) >= _KINDS_MAX:
            self._seen.clear()
        self._seen[kind] = (now, 0)
        if left_out:
            record.msg = f"{record.msg} ({left_out} such lines left out)"
        return True
