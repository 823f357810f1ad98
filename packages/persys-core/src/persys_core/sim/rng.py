"""Streams of chance that do not disturb each other.

Decided here: how a seed becomes generators. Every component draws from a stream of its own, made
from the run's seed and the component's name, so that one more draw in one place does not change
what happens in any other, and a run replays from its seed alone.
"""

from __future__ import annotations

import hashlib
import random

__all__ = ["stream"]


def stream(seed: int, *names: str | int) -> random.Random:
    """The generator that ``names`` have under ``seed``; equal arguments give equal streams."""
    text = "\x1f".join(map(str, (seed, *names)))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16]))
