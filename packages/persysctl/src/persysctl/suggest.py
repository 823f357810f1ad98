"""Near misses: which known word a mistyped one may have meant.

Decided here: how near is near enough, and how the question is put.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["did_you_mean", "nearest"]

_CUTOFF = 0.6


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like ``word``, whatever their case; ``None`` where none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(known)}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=_CUTOFF)
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` to put after an error text, or nothing."""
    match = nearest(word, known)
    return f"; did you mean {match!r}?" if match else ""
