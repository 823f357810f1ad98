"""The copy that a value takes of a mapping it is given, so that nobody changes it afterwards."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["text_map"]


def text_map(values: Mapping[str, str]) -> dict[str, str]:
    """A copy of ``values``; the converter of every field that maps text to text."""
    return dict(values)
