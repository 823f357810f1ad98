"""Where the output goes: two streams, and what each of them can show.

Decided here: colour only on a terminal, and never where NO_COLOR is set; a table is as wide as the
terminal, and as wide as it needs where there is none or where everything was asked for. Nothing
here knows what is shown.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import TextIO

from rich.console import Console, RenderableType

from persysctl.output.structured import OutputFormat, dump, dump_line
from persysctl.output.words import clean

__all__ = ["Output", "Terminal"]

_UNLIMITED_WIDTH = 1_000_000


@dataclass(frozen=True, slots=True)
class Terminal:
    """The streams of one call, and the environment that says how to write to them."""

    out: TextIO
    err: TextIO
    environ: Mapping[str, str]

    def console(self, stream: TextIO) -> Console:
        """A console that suits ``stream``."""
        return self._console(stream, stream)

    def write(self, *renderables: RenderableType, uncut: bool = False) -> None:
        """Show them on standard output, without trailing blanks; ``uncut``: however wide."""
        if not renderables:
            return
        buffer = StringIO()
        self._console(self.out, buffer, uncut=uncut).print(*renderables, sep="\n")
        lines = buffer.getvalue().splitlines()
        self.write_text("".join(f"{line.rstrip()}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Write ready text to standard output, at once."""
        self.out.write(text)
        self.out.flush()

    def note(self, text: str) -> None:
        """Tell the person something that is not part of the answer."""
        self.err.write(clean(text) + "\n")
        self.err.flush()

    def shows_progress(self) -> bool:
        """Whether a person sees what happens while we wait."""
        return self.err.isatty() and self.environ.get("TERM") != "dumb"

    def is_redrawn(self) -> bool:
        """Whether standard output can show one thing in the place of another."""
        return self.out.isatty() and self.environ.get("TERM") != "dumb"

    def is_coloured(self, stream: TextIO) -> bool:
        """Whether ``stream`` shows colours, and they are wanted."""
        dumb = self.environ.get("TERM") == "dumb"
        return stream.isatty() and not dumb and not self.environ.get("NO_COLOR")

    def _console(self, stream: TextIO, file: TextIO, *, uncut: bool = False) -> Console:
        is_terminal = stream.isatty()
        dumb = self.environ.get("TERM") == "dumb"
        return Console(
            file=file,
            force_terminal=is_terminal and not dumb,
            color_system="standard" if self.is_coloured(stream) else None,
            width=self._columns() if is_terminal and not uncut else _UNLIMITED_WIDTH,
            legacy_windows=False,
            markup=False,
            emoji=False,
            highlight=False,
        )

    def _columns(self) -> int:
        given = self.environ.get("COLUMNS", "")
        if given.isascii() and given.isdigit() and int(given) > 0:
            return int(given)
        return shutil.get_terminal_size().columns


@dataclass(frozen=True, slots=True)
class Output:
    """How this call wants to be answered."""

    terminal: Terminal
    format: OutputFormat

    @property
    def is_structured(self) -> bool:
        """Whether a program reads the answer."""
        return self.format in (OutputFormat.JSON, OutputFormat.YAML)

    @property
    def is_wide(self) -> bool:
        """Whether the person wants every column."""
        return self.format is OutputFormat.WIDE

    def show(self, value: object, tables: Callable[[], Iterable[RenderableType]]) -> None:
        """The answer: ``value`` for a program, else what ``tables`` makes for a person."""
        if self.is_structured:
            self.terminal.write_text(dump(value, self.format))
        else:
            self.terminal.write(*tables(), uncut=self.is_wide)

    def show_next(self, value: object, line: Callable[[], RenderableType]) -> None:
        """One part of an answer that does not end."""
        if self.is_structured:
            self.terminal.write_text(dump_line(value, self.format))
        else:
            self.terminal.write(line())

    def say(self, text: str) -> None:
        """A line for a person; a program gets the same in the answer's value."""
        if not self.is_structured:
            self.terminal.write_text(clean(text) + "\n")
