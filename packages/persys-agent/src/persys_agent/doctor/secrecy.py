"""Whether files that hold secrets are their owner's alone."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from persys_agent.doctor.findings import Finding, Verdict

__all__ = ["open_to_others"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def open_to_others(path: Path, check: str) -> Iterator[Finding]:
    """A warning where others may read or write ``path``."""
    if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        yield Finding(
            check, Verdict.WARN, f"{path} holds secrets, and others may read or write it",
            f"chmod 600 {path}",
        )  # fmt: skip
