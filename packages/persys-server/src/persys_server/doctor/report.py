"""The doctor's table, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from persys_server.doctor.findings import Finding, Verdict

__all__ = ["exit_code", "print_report"]

_STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red"}


def exit_code(findings: Sequence[Finding]) -> int:
    """1 where something fails, else 0; a warning is no failure."""
    return int(any(finding.verdict is Verdict.FAIL for finding in findings))


def print_report(findings: Sequence[Finding], stream: TextIO) -> None:
    """Write the table, coloured on a terminal only."""
    table = Table("", "what", "found", "what to do", box=None, pad_edge=False)
    for finding in findings:
        verdict = Text(str(finding.verdict), style=_STYLES[finding.verdict])
        table.add_row(verdict, finding.check, Text(finding.found), Text(finding.advice))
    console = Console(file=stream, width=None if stream.isatty() else 120)
    console.print(table)
