"""Options anywhere among a verb's other words, as in ``delete workload --wait a b``.

argparse gives a positional its words at the first of them and refuses those that stand behind a
later option. Decided here: which words belong to options; these are put first, in their order.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

__all__ = ["options_first"]

_END = "--"


def options_first(words: Sequence[str], options: Mapping[str, argparse.Action]) -> list[str]:
    """The same words, those of ``options`` (by name) first. Raises ``argparse.ArgumentError``
    where the last option lacks its value, as it would take another word for it then.

    What stands behind ``--`` is no option, and neither is ``-`` alone.
    """
    found: list[str] = []
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == _END:
            others += rest
            break
        if not _is_option(word):
            others.append(word)
            continue
        found.append(word)
        action = _awaiting_value(word, options)
        if action is None:
            continue
        if not rest or rest[0] == _END:
            raise argparse.ArgumentError(action, "expected one argument")
        found.append(rest.pop(0))
    needs_end = any(map(_is_option, others))
    return [*found, *([_END] if needs_end else []), *others]


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _awaiting_value(word: str, options: Mapping[str, argparse.Action]) -> argparse.Action | None:
    """The option whose value is the next word; short ones may stand together, as in ``-it``."""
    if word.startswith(_END):
        action = options.get(word)
        return action if action is not None and _takes_value(action) else None
    for place, letter in enumerate(word[1:], start=2):
        action = options.get(f"-{letter}")
        if action is None:
            return None
        if _takes_value(action):
            return action if place == len(word) else None
    return None


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs is None
