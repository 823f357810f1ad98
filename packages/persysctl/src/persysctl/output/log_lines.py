"""The output of a workload, line by line, on our own two streams.

Decided here: what a workload wrote to standard error goes to ours, the rest (its console too) to
standard output, as `docker logs` does. A line goes into a file or a pipe as it is. On a terminal it
may be coloured and nothing else: of its escape sequences only those for colours stay, so that no
workload can rename a window, answer for the keyboard or overwrite what stands above; colours go too
where none are wanted.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import TextIO

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.output.structured import dump_line, plain
from persysctl.output.terminal import Output
from persysctl.output.words import NOTHING, clean

__all__ = ["LogLines", "harmless"]

_COLOUR = re.compile(r"(\x1b\[[0-9;:]*m)")
_PLAIN = "\x1b[0m"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SOURCE_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


def harmless(text: str, *, coloured: bool) -> str:
    """``text`` without anything that steers a terminal, its colours aside."""
    parts = _COLOUR.split(text.removesuffix("\r"))
    if not coloured:
        return clean("".join(parts[::2]))
    shown = "".join(each if number % 2 else clean(each) for number, each in enumerate(parts))
    return shown + _PLAIN if len(parts) > 1 else shown


class LogLines:
    """Prints lines; services get a colour and a column when they are first seen."""

    def __init__(self, output: Output, *, timestamps: bool = False) -> None:
        self._output = output
        self._timestamps = timestamps
        self._colours = cycle(_SOURCE_COLOURS)
        self._colour_of: dict[str, int] = {}
        self._width = 0

    def show(self, line: wire.LogLine, node_id: str) -> None:
        """Print one line; a program gets it as a document that also names the node."""
        terminal = self._output.terminal
        if self._output.is_structured:
            value = {**plain(line), "nodeId": node_id}
            terminal.write_text(dump_line(value, self._output.format))
            return
        stream = terminal.err if line.stream == "stderr" else terminal.out
        stream.write(self._line(line, stream) + "\n")
        stream.flush()

    def _line(self, line: wire.LogLine, stream: TextIO) -> str:
        coloured = self._output.terminal.is_coloured(stream)
        text = harmless(line.text, coloured=coloured) if stream.isatty() else line.text
        at = f"{_instant(line.at_ms)} " if self._timestamps else ""
        return self._source(line.source, coloured=coloured) + at + text

    def _source(self, source: str, *, coloured: bool) -> str:
        if not source:
            return ""
        self._width = max(self._width, len(source))
        if source not in self._colour_of:
            self._colour_of[source] = next(self._colours)
        name = f"{clean(source):<{self._width}} |"
        return f"\x1b[{self._colour_of[source]}m{name}{_PLAIN} " if coloured else f"{name} "


def _instant(at_ms: int) -> str:
    """An instant in UTC, to the millisecond; ``-`` where it is not known."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return NOTHING
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z" if at_ms else NOTHING
