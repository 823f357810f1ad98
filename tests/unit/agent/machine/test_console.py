"""Reading a console that something else writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from persys_agent.runtimes.machine.console import console_lines, limit_console
from persys_agent.runtimes.port import LogLine


async def ended() -> bool:
    return False


async def read(path: Path, tail: int, follow: bool = False) -> list[str]:
    lines = console_lines(path, tail=tail, follow=follow, is_running=ended)
    return [line.text async for line in lines]


@pytest.mark.asyncio
async def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    """``tail`` counts from the end; none for 0; an unfinished line is one; ends are cut."""
    path = tmp_path / "console"
    path.write_bytes(b"one\r\ntwo\r\nthr\xffee\nfour")
    assert await read(path, 2) == ["thr\N{REPLACEMENT CHARACTER}ee", "four"]
    assert await read(path, 9) == ["one", "two", "thr\N{REPLACEMENT CHARACTER}ee", "four"]
    assert await read(path, 0) == []


@pytest.mark.asyncio
async def test_a_console_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """A machine that was never started has no lines."""
    assert await read(tmp_path / "none", 5) == []
    assert await read(tmp_path / "none", 5, follow=True) == []


@pytest.mark.asyncio
async def test_a_long_console_is_read_from_its_end(tmp_path: Path) -> None:
    """One megabyte is read at most, and no cut line is shown."""
    path = tmp_path / "console"
    path.write_text("x" * 3_000_000 + "\nlast\n")
    assert await read(path, 100) == ["last"]


@pytest.mark.asyncio
async def test_lines_have_the_console_as_their_stream(tmp_path: Path) -> None:
    """A console has neither output nor errors."""
    path = tmp_path / "console"
    path.write_text("line\n")
    lines = console_lines(path, tail=1, follow=False, is_running=ended)
    assert [line async for line in lines] == [LogLine("line", "console")]


class Script:
    """Writes one step each time that it is asked whether the machine runs."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)

    async def __call__(self) -> bool:
        if self.steps:
            self.steps.pop(0)()
        return bool(self.steps)


def appending(path: Path, text: str) -> Callable[[], object]:
    def append() -> None:
        with path.open("a") as file:
            file.write(text)

    return append


async def followed(path: Path, tail: int, is_running: Callable[[], Awaitable[bool]]) -> list[str]:
    lines: AsyncIterator[LogLine] = console_lines(
        path, tail=tail, follow=True, is_running=is_running, poll_seconds=0
    )
    return [line.text async for line in lines]


@pytest.mark.asyncio
async def test_following_sees_every_line_once(tmp_path: Path) -> None:
    """Halves of lines are joined, the end is not missed, and nothing comes twice."""
    path = tmp_path / "console"
    path.write_text("old\nbegun")
    script = Script(appending(path, " then\nne"), lambda: None, appending(path, "w\nend"))
    assert await followed(path, 1, script) == ["old", "begun then", "new", "end"]


@pytest.mark.asyncio
async def test_following_survives_an_emptied_file(tmp_path: Path) -> None:
    """A file that was emptied, or replaced, is read from its beginning."""
    path = tmp_path / "console"
    path.write_text("a long line of before\n")
    script = Script(
        lambda: path.write_text("a\n"),
        lambda: path.rename(tmp_path / "rotated"),
        appending(path, "b\n"),
    )
    assert await followed(path, 0, script) == ["a", "b"]


@pytest.mark.asyncio
async def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    """What never ends a line does not fill the memory."""
    path = tmp_path / "console"
    path.touch()
    script = Script(appending(path, "x" * 300_000))
    texts = await followed(path, 0, script)
    assert sum(map(len, texts)) == 300_000
    assert max(map(len, texts)) <= 2 * 64 * 1024


def test_a_console_does_not_grow_for_ever(tmp_path: Path) -> None:
    """Above its limit it is emptied; its writer appends, so it goes on at the beginning."""
    path = tmp_path / "console"
    with path.open("ab") as writer:
        writer.write(b"x" * 100)
        writer.flush()
        assert not limit_console(path, 100)
        assert limit_console(path, 99)
        writer.write(b"more")
    assert path.read_bytes() == b"more"
    assert not limit_console(tmp_path / "none", 1)
