"""What a person at a terminal sees while a command waits: a line per workload.

Decided here: that it is shown on standard error, on a terminal only, and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from persysctl.output.terminal import Terminal
from persysctl.output.words import clean
from persysctl.wait import Outcome, Standing

__all__ = ["progress"]

_MARKS = {Standing.REACHED: ("✓", "green"), Standing.FAILED: ("✗", "red")}


@contextmanager
def progress(
    terminal: Terminal, workload_ids: Iterable[str]
) -> Iterator[Callable[[str, Outcome], None]]:
    """Yield what hears of every look at a workload."""
    if not terminal.shows_progress():
        yield lambda _, __: None
        return
    lines: dict[str, Spinner | Text] = {name: _spinner(name, "…") for name in workload_ids}
    console = terminal.console(terminal.err)
    with Live(Group(*lines.values()), console=console, transient=True) as live:

        def tell(workload_id: str, outcome: Outcome) -> None:
            lines[workload_id] = _line(workload_id, outcome)
            live.update(Group(*lines.values()))

        yield tell


def _line(workload_id: str, outcome: Outcome) -> Spinner | Text:
    mark = _MARKS.get(outcome.standing)
    if mark is None:
        return _spinner(workload_id, outcome.text)
    return Text(f"{mark[0]} {clean(workload_id)}  {clean(outcome.text)}", style=mark[1])


def _spinner(workload_id: str, text: str) -> Spinner:
    return Spinner("dots", Text(f"{clean(workload_id)}  {clean(text)}"))
