"""Numbers with their nouns: ``1 workload``, ``2 workloads``."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, noun: str) -> str:
    """``count`` and ``noun``, which gets its plural by an ``s``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
