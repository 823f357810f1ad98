"""Texts of agents, made fit for records, events and eyes: no secrets, a bounded length.

Decided here: the order of cleaning and cutting. A text is cut only after the workload's secrets
are out of it, and then at a blank, so that no half of a secret or of a URL's password is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from persys_core.model.event import capped
from persys_core.model.secrets import scrubbed, without_values

__all__ = ["presentable"]

_LONGEST = 4096


def presentable(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without the ``secrets`` and URL credentials, at most 1 KiB of UTF-8."""
    cleaned = without_values(text, secrets).strip()
    return capped(scrubbed(_cut_at_blank(cleaned), ()))


def _cut_at_blank(text: str) -> str:
    """The beginning of a long text; agents send whole logs, and searching those is slow."""
    if len(text) <= _LONGEST:
        return text
    head = text[:_LONGEST]
    whole_words = head.rsplit(maxsplit=1)[0] if len(head.split(maxsplit=1)) > 1 else ""
    return whole_words + " …"
