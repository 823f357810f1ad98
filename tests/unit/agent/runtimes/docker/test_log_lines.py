"""Frames of the Engine become lines, however they are cut."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from persys_agent.runtimes.docker.log_lines import FramedLines, PlainLines
from persys_agent.runtimes.port import LogLine

TIME = "2026-05-01T10:00:00.000001234Z"
AT = datetime(2026, 5, 1, 10, 0, 0, 1, UTC)


def frame(text: str, stream: int = 1) -> bytes:
    data = f"{TIME} {text}".encode()
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_chunks_do_not_matter(size: int) -> None:
    """The same bytes give the same lines, in whatever pieces they arrive."""
    data = frame("one\n") + frame("two\n", 2) + frame("\n") + frame("thr") + frame("ee\r\n")
    lines = FramedLines("web")
    found = [
        line
        for place in range(0, len(data), size)
        for line in lines.feed(data[place : place + size])
    ]
    assert found == [
        LogLine("one", "stdout", "web", AT),
        LogLine("two", "stderr", "web", AT),
        LogLine("", "stdout", "web", AT),
        LogLine("three", "stdout", "web", AT),
    ]
    assert list(lines.flush()) == []


def test_an_unfinished_line_is_told_at_the_end() -> None:
    """What a program wrote last without an end of line is not lost."""
    lines = FramedLines()
    assert list(lines.feed(frame("last words"))) == []
    assert list(lines.flush()) == [LogLine("last words", "stdout", "", AT)]


def test_an_endless_line_is_cut() -> None:
    """A line without an end does not grow without bound."""
    lines = FramedLines()
    found = [line for _ in range(20) for line in lines.feed(frame("x" * 16384))]
    assert len(found) == 1
    assert len(found[0].text) > 16384


def test_a_terminal_has_no_frames() -> None:
    """With a terminal all is output, and lines end as terminals end them."""
    lines = PlainLines()
    found = list(lines.feed(f"{TIME} one\r\n{TIME} tw".encode()))
    found += lines.feed(b"o\r\n")
    assert found == [LogLine("one", "stdout", "", AT), LogLine("two", "stdout", "", AT)]
    list(lines.feed(f"{TIME} end".encode()))
    assert list(lines.flush()) == [LogLine("end", "stdout", "", AT)]
