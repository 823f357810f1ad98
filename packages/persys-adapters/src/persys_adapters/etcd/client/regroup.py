"""From responses to revisions: all events of one revision together, each revision once.

etcd sends whole revisions, several in one response where there is a backlog; only a response that
says so (``fragment``) is continued by the next one. Pure; it knows nothing of lines but that one
may be lost, and with it the begun part of a revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from persys_adapters.etcd.client.values import KeyEvent, WatchBatch

__all__ = ["Regrouper"]


class Regrouper:
    """``next_revision``: the first revision that is not handed out whole yet; 0 is not known yet.

    A new line is to begin there.
    """

    def __init__(self, next_revision: int) -> None:
        self.next_revision = next_revision
        self._begun: list[KeyEvent] = []

    def begin(self, revision: int) -> None:
        """Nothing before ``revision`` is wanted."""
        self.next_revision = revision

    def line_lost(self) -> None:
        """What is begun will be sent again from its revision's start."""
        self._begun.clear()

    def feed(self, events: Iterable[KeyEvent], goes_on: bool) -> Iterator[WatchBatch]:
        """The revisions that are whole now. ``goes_on``: the last one may be continued."""
        self._begun.extend(each for each in events if each.kv.mod_revision >= self.next_revision)
        groups = [
            WatchBatch(revision, tuple(group))
            for revision, group in groupby(self._begun, lambda each: each.kv.mod_revision)
        ]
        self._begun = list(groups.pop().events) if goes_on and groups else []
        for batch in groups:
            self.next_revision = batch.revision + 1
            yield batch
