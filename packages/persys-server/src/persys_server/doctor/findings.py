"""What a look is worth: one line of the doctor's table."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

__all__ = ["Finding", "Verdict"]


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Finding:
    """One line of the table: what was looked at, what was found, and what to do about it."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
