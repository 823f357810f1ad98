"""The doctor's table, its JSON, and the exit code that goes with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from persys_agent.doctor.findings import Finding, Verdict

__all__ = ["exit_code", "print_json", "print_report"]

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


def print_json(findings: Sequence[Finding], stream: TextIO) -> None:
    """Write ``{"ok": …, "findings": [{"check", "verdict", "found", "advice"}, …]}``."""
    report = {
        "ok": exit_code(findings) == 0,
        "findings": [
            {
                "check": each.check,
                "verdict": str(each.verdict),
                "found": each.found,
                "advice": each.advice,
            }
            for each in findings
        ],
    }
    json.dump(report, stream, indent=2, ensure_ascii=False)
    stream.write("\n")
