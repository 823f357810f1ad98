"""``Columns``: a table without lines that fits where it is shown.

Decided here: what gives way on a narrow terminal. The last column says why, so it is wrapped and
keeps room for words; the others are cut in their middle, the widest first, since names that begin
alike mostly end differently. Each row of the others is one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

__all__ = ["Columns"]

_GAP = 2
_LEAST_LAST = 24
_LEAST = 8
_ELLIPSIS = "…"


class Columns:
    """Rows of texts, each of one line, under headers."""

    def __init__(self, headers: Sequence[str], rows: Iterable[Sequence[Text]]) -> None:
        self._headers = headers
        self._rows = [list(row) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        limit = self._limit(options.max_width)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for header in self._headers[:-1]:
            table.add_column(header, no_wrap=True, overflow="ellipsis")
        table.add_column(self._headers[-1], overflow="fold")
        for row in self._rows:
            table.add_row(*(_cut(cell, limit) for cell in row[:-1]), row[-1])
        yield table

    def _limit(self, room: int) -> int:
        """How wide a cell may be, so that the last column has its room."""
        widths = [
            max([cell_len(header), *(row[place].cell_len for row in self._rows)])
            for place, header in enumerate(self._headers)
        ]
        last = min(widths[-1], max(_LEAST_LAST, cell_len(self._headers[-1])))
        room -= last + _GAP * (len(widths) - 1)
        limit = max(widths)
        while limit > _LEAST and sum(min(width, limit) for width in widths[:-1]) > room:
            limit -= 1
        return limit


def _cut(cell: Text, limit: int) -> Text:
    """The cell with its middle left out where it is too wide."""
    if cell.cell_len <= limit:
        return cell
    end = (limit - 1) // 3
    head = set_cell_size(cell.plain, limit - 1 - end).rstrip()
    tail = cell.plain[-end:]
    while cell_len(tail) > end:
        tail = tail[1:]
    return Text(f"{head}{_ELLIPSIS}{tail}", style=cell.style)
