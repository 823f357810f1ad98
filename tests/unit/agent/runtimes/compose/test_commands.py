"""Programs end with whoever waits for them, and cannot fill the memory."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.runtimes.compose.commands import CommandResult, SubprocessRunner

LONG = timedelta(seconds=20)
PATH = {"PATH": "/usr/bin:/bin"}


async def run(script: str, timeout: timedelta = LONG, given: bytes = b"") -> CommandResult:
    return await SubprocessRunner().run(
        ["sh", "-c", script],
        env=PATH | {"ONLY": "this"},
        cwd=Path("/"),
        timeout=timeout,
        input=given,
    )


@pytest.mark.asyncio
async def test_a_program_answers() -> None:
    """Code, output and errors; its input and its environment are what it was given."""
    found = await run('cat; echo "$ONLY$HOME"; echo no >&2; exit 3', given=b"in ")
    assert found == (3, "in this\n", "no\n")


@pytest.mark.asyncio
async def test_the_end_of_much_output_is_kept() -> None:
    """Whoever writes without end is read, and the last of it is kept."""
    found = await run("seq 20000; echo last")
    assert found.stdout.endswith("last\n")
    assert len(found.stdout) == 64 * 1024


@pytest.mark.asyncio
async def test_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    """What takes too long is killed, and what it started too."""
    mark = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        await run(f"sleep 600 & echo $! > {mark}; wait", timedelta(milliseconds=300))
    child = Path("/proc") / mark.read_text().strip()
    async with asyncio.timeout(5):
        while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_what_is_not_there_is_an_os_error() -> None:
    """A program that cannot be run is told from one that failed."""
    with pytest.raises(OSError, match="nosuchprogram"):
        await SubprocessRunner().run(["nosuchprogram"], env={}, cwd=Path("/"), timeout=LONG)
