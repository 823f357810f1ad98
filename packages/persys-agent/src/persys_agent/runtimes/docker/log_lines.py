"""The Engine's log stream as lines, told apart by stream, with their times.

Decided here: how frames (a header of eight bytes, then one message) become lines. A message longer
than the Engine's 16 KiB arrives in parts, each with a time of its own; a container with a terminal
has no frames at all.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime

from persys_agent.runtimes.docker.documents import Document, flag, instant, text
from persys_agent.runtimes.docker.engine import NOT_FOUND, Engine, EngineError
from persys_agent.runtimes.docker.states import LastWords, ended_badly
from persys_agent.runtimes.port import FailureCode, LogLine, RuntimeFailedError

__all__ = ["FramedLines", "LastWordsReader", "PlainLines", "container_lines", "last_words"]

_HEADER = 8
_STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}
_LONGEST_LINE = 256 * 1024
_REMEMBERED = 1000
_WORDS_LINES = 50
_WORDS_CHARACTERS = 8 * 1024


class _Lines:
    """The unfinished line of one stream."""

    def __init__(self, stream: str, source: str) -> None:
        self._stream, self._source = stream, source
        self._at: datetime | None = None
        self._text = ""

    def feed(self, message: str) -> Iterator[LogLine]:
        """One message with its time: a whole line, or a part of one."""
        stamp, _, rest = message.partition(" ")
        if not self._text:
            self._at = instant({"at": stamp}, "at")
        self._text += rest.rstrip("\r\n")
        if rest.endswith("\n") or len(self._text) > _LONGEST_LINE:
            yield from self.flush()

    def flush(self) -> Iterator[LogLine]:
        """What is there of an unfinished line."""
        if self._at is not None:
            yield LogLine(self._text, self._stream, self._source, self._at)
        self._text, self._at = "", None


class FramedLines:
    """Lines of a container without a terminal."""

    def __init__(self, source: str = "") -> None:
        self._buffer = bytearray()
        self._lines = {name: _Lines(name, source) for name in _STREAMS.values()}

    def feed(self, data: bytes) -> Iterator[LogLine]:
        """The lines that ``data`` completes."""
        self._buffer += data
        while len(self._buffer) >= _HEADER:
            end = _HEADER + int.from_bytes(self._buffer[4:_HEADER], "big")
            if len(self._buffer) < end:
                return
            message = self._buffer[_HEADER:end].decode(errors="replace")
            stream = _STREAMS.get(self._buffer[0], "stdout")
            del self._buffer[:end]
            yield from self._lines[stream].feed(message)

    def flush(self) -> Iterator[LogLine]:
        """What was not ended by a line's end."""
        for each in self._lines.values():
            yield from each.flush()


class PlainLines:
    """Lines of a container with a terminal, where all is output."""

    def __init__(self, source: str = "") -> None:
        self._buffer = b""
        self._lines = _Lines("stdout", source)

    def feed(self, data: bytes) -> Iterator[LogLine]:
        """The lines that ``data`` completes."""
        *whole, self._buffer = (self._buffer + data).split(b"\n")
        for each in whole:
            yield from self._lines.feed(each.decode(errors="replace") + "\n")

    def flush(self) -> Iterator[LogLine]:
        """What was not ended by a line's end."""
        if self._buffer:
            yield from self._lines.feed(self._buffer.decode(errors="replace") + "\n")
        self._buffer = b""


async def container_lines(
    engine: Engine,
    container: str,
    tail: int | None,
    *,
    follow: bool,
    source: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> AsyncGenerator[LogLine, None]:
    """The last lines of a container (``None``: all), then those to come. Raises
    ``RuntimeFailedError``."""
    shown = await engine.show(container)
    if shown is None:
        raise _gone(container)
    has_terminal = flag(shown, "Config", "Tty")
    lines = PlainLines(source) if has_terminal else FramedLines(source)
    try:
        chunks = engine.logs(container, tail, follow=follow, since=since, until=until)
        async with aclosing(chunks):
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    yield line
    except EngineError as error:
        if error.status == NOT_FOUND:
            raise _gone(container) from error
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, f"no logs: {error}") from error
    for line in lines.flush():
        yield line


async def last_words(engine: Engine, container: str, until: datetime | None = None) -> LastWords:
    """The end of what a container wrote: of its errors, or where there are none of its output.
    ``until``: what it wrote later does not count."""
    written: dict[str, list[str]] = {"stdout": [], "stderr": []}
    try:
        lines = container_lines(engine, container, _WORDS_LINES, follow=False, until=until)
        async with aclosing(lines):
            async for line in lines:
                written[line.stream].append(line.text)
    except RuntimeFailedError as error:
        return LastWords(error=str(error))
    chosen = written["stderr"] or written["stdout"]
    return LastWords("\n".join(chosen)[-_WORDS_CHARACTERS:])


class LastWordsReader:
    """Reads the last words of containers, once for each end of theirs (defect 23)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[str, LastWords]] = OrderedDict()

    async def of(self, shown: Document) -> LastWords:
        """What it wrote before it failed; nothing of one that did not."""
        if not ended_badly(shown):
            return LastWords()
        container, ended = text(shown, "Id"), text(shown, "State", "FinishedAt")
        known = self._known.pop(container, None)
        if known is None or known[0] != ended:
            known = (ended, await last_words(self._engine, container))
        self._known[container] = known
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return known[1]


def _gone(container: str) -> RuntimeFailedError:
    return RuntimeFailedError(FailureCode.RUNTIME_ERROR, f'there is no container "{container}"')
