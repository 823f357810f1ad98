"""From responses to revisions: all events of one revision together, each revision once.

etcd sends whole revisions, several in one response where there is a backlog; only a response that
says so (``fragment``) is continued by the next one. Pure; it knows nothing of lines but that one
may be lost, and with it the begun part of a revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    def feed(self, events: Sequence[KeyEvent], goes_on: bool) -> Iterable[WatchBatch]:
        """The revisions that are whole now. ``goes_on``: the last one may be continued."""
        if len(events) == 1 and not self._begun and not goes_on:
            return self._single(events[0])
        self._begun.extend(each for each in events if each.kv.mod_revision >= self.next_revision)
        groups = [
            WatchBatch(revision, tuple(group))
            for revision, group in groupby(self._begun, lambda each: each.kv.mod_revision)
        ]
        self._begun = list(groups.pop().events) if goes_on and groups else []
        return self._handed_out(groups)

    def _single(self, event: KeyEvent) -> tuple[WatchBatch, ...]:
        """By far the most frequent case, and the shortest way for it."""
        revision = event.kv.mod_revision
        if revision < self.next_revision:
            return ()
        self.next_revision = revision + 1
        return (WatchBatch(revision, (event,)),)

    def _handed_out(self, groups: list[WatchBatch]) -> Iterator[WatchBatch]:
        for batch in groups:
            self.next_revision = batch.revision + 1
            yield batch
