"""Which name was meant by one that nobody knows.

Decided here: what all names begin with says nothing, so it is not compared, nor are underscores. A
name that is not near gets no suggestion, since a wrong one costs more than none.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

__all__ = ["nearest"]

_NEAR = 0.78
_TELLING = 3
"""Letters; a shorter name is near to too many."""


def nearest(name: str, known: Collection[str], prefixes: Iterable[str] = ()) -> str:
    """The one of ``known`` that ``name`` is a slip of; empty where none is near.

    ``prefixes``: what groups of names begin with; only names of the same group are compared. The
    first words of just one name are near to it, too.
    """
    begun = [each for each in known if each.startswith(f"{name}_")]
    if len(begun) == 1:
        return begun[0]
    prefix = next((each for each in prefixes if name.startswith(each)), "")
    bare = {
        _bare(each, prefix): each for each in sorted(known, reverse=True) if each.startswith(prefix)
    }
    wanted = _bare(name, prefix)
    if len(wanted) < _TELLING:
        return ""
    near = difflib.get_close_matches(wanted, bare, n=1, cutoff=_NEAR)
    return bare[near[0]] if near else ""


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).replace("_", "").lower()
