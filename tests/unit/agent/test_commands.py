"""The command runner: real small programs, ended in time, their output bounded, secrets masked."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from persys_agent.commands import (
    CommandTimeoutError,
    HostCommands,
    MissingProgramError,
)
from persys_agent.testing.commands import ScriptedCommands

PATIENCE = timedelta(seconds=20)
SOON = timedelta(milliseconds=100)


async def sh(script: str) -> str:
    result = await HostCommands().run(["sh", "-c", script], timeout=PATIENCE)
    assert result.ok, result.said
    return result.text


@pytest.mark.asyncio
async def test_words_are_no_shell() -> None:
    """What a shell would act on reaches the program as it is."""
    result = await HostCommands().run(["echo", "$HOME; `id` > /x"], timeout=PATIENCE)
    assert result.text == "$HOME; `id` > /x"


@pytest.mark.asyncio
async def test_an_exit_code_is_a_value() -> None:
    """The caller gets code, output and the last words."""
    result = await HostCommands().run(
        ["sh", "-c", "echo out; echo trouble >&2; exit 3"], timeout=PATIENCE
    )
    assert (result.ok, result.code, result.text, result.said) == (False, 3, "out", "trouble")


@pytest.mark.asyncio
async def test_a_program_that_is_absent() -> None:
    """It is told by type, and named."""
    commands = HostCommands()
    assert commands.find("persys-no-such-program") == ""
    assert commands.find("sh").endswith("/sh")
    with pytest.raises(MissingProgramError, match="persys-no-such-program is not on this host"):
        await commands.run(["persys-no-such-program"], timeout=PATIENCE)


@pytest.mark.asyncio
async def test_input_and_folder_and_environment(tmp_path: Path) -> None:
    """All three reach the program; a program may leave its input unread."""
    result = await HostCommands().run(
        ["sh", "-c", 'cat; pwd; echo "$ADDED"'],
        timeout=PATIENCE,
        env={"ADDED": "yes"},
        cwd=str(tmp_path),
        input=b"in\n",
    )
    assert result.text.splitlines() == ["in", str(tmp_path), "yes"]
    unread = await HostCommands().run(["true"], timeout=PATIENCE, input=b"x" * 1_000_000)
    assert unread.ok


@pytest.mark.asyncio
async def test_programs_do_not_get_the_agents_secrets() -> None:
    """Variables of the agent and of secret names stay here; programs of root are found."""
    environment = {"PERSYS_X": "a", "AWS_SECRET": "b", "PLAIN": "c", "PATH": "/usr/bin:/bin"}
    result = await HostCommands(environment).run(["env"], timeout=PATIENCE)
    names = {line.partition("=")[0] for line in result.text.splitlines()}
    assert {"PERSYS_X", "AWS_SECRET"} & names == set()
    assert "PLAIN" in names
    assert "PATH=/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin" in result.text


def is_running(pid: int) -> bool:
    """A zombie that nobody reaped does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def ended(pid: int) -> None:
    async with asyncio.timeout(10):
        while is_running(pid):  # noqa: ASYNC110 -- no child of ours
            await asyncio.sleep(0.01)


PARENT = "sleep 300 & echo $! > pid.new; mv pid.new pid; wait"


async def child_of(folder: Path) -> int:
    async with asyncio.timeout(10):
        while not (folder / "pid").exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
    return int((folder / "pid").read_text())


@pytest.mark.asyncio
async def test_cancelling_ends_the_whole_group(tmp_path: Path) -> None:
    """The children of the command end with it."""
    task = asyncio.create_task(
        HostCommands().run(["sh", "-c", PARENT], timeout=PATIENCE, cwd=str(tmp_path))
    )
    child = await child_of(tmp_path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(child)


@pytest.mark.asyncio
@pytest.mark.timeout(30)
async def test_cancelling_amid_the_start_ends_the_whole_group(tmp_path: Path) -> None:
    """The program began, and had children, before the loop got to hear of it: they end with it too,
    and whoever cancels does not wait for the pipes that they hold."""
    task = asyncio.create_task(
        HostCommands().run(["sh", "-c", PARENT], timeout=PATIENCE, cwd=str(tmp_path))
    )
    for _ in range(2):  # the program is begun, and no more than that
        await asyncio.sleep(0)
    until = time.monotonic() + 10
    while not (tmp_path / "pid").exists() and time.monotonic() < until:
        time.sleep(0.01)  # noqa: ASYNC251 -- the loop is to be held up
    child = int((tmp_path / "pid").read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await ended(child)


@pytest.mark.asyncio
async def test_a_command_that_takes_too_long_is_ended() -> None:
    """It is told by type, with the command and the limit; the text masks secrets."""
    script = ["sh", "-c", "sleep 300", "--token", "sesame"]
    with pytest.raises(CommandTimeoutError, match=r"longer than 0\.1 s") as caught:
        await HostCommands().run(script, timeout=SOON)
    assert "sesame" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_command_that_ignores_the_signal_is_killed() -> None:
    """After a grace it is killed."""
    with pytest.raises(CommandTimeoutError):
        await HostCommands().run(
            ["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], timeout=SOON
        )


@pytest.mark.slow
@pytest.mark.asyncio
async def test_what_goes_on_in_the_background_is_not_waited_for() -> None:
    """A helper that a command leaves behind on purpose neither holds it up nor is ended."""
    pid = int(await sh("sleep 300 & echo $!"))
    assert is_running(pid)
    os.kill(pid, 9)


@pytest.mark.asyncio
async def test_output_is_bounded() -> None:
    """Of much output the beginning is kept, of much trouble the end, and that is told."""
    result = await HostCommands().run(
        ["sh", "-c", "echo first; head -c 6000000 /dev/zero; echo last >&2"], timeout=PATIENCE
    )
    assert result.truncated
    assert result.stdout.startswith(b"first")
    assert len(result.stdout) == 4 << 20
    assert result.said == "last"


@pytest.mark.asyncio
async def test_every_command_is_logged_without_secrets() -> None:
    """Words, end and time are logged; what is secret in words or environment is masked, also in
    the last words."""
    with capture_logs() as logs:
        result = await HostCommands().run(
            ["sh", "-c", 'echo "bad $DB_PASSWORD" >&2; exit 4', "--token", "sesame"],
            timeout=PATIENCE,
            env={"DB_PASSWORD": "open-door"},
        )
    (line,) = [each for each in logs if each["event"] == "command"]
    assert line["ended"] == "4"
    assert line["argv"][-1] == "***"
    assert result.said == "bad ***"
    assert "sesame" not in str(logs)
    assert "open-door" not in str(logs)


@pytest.mark.asyncio
async def test_the_double_answers_as_it_is_told() -> None:
    """The later rule wins, effects happen on success, and what is not scripted fails the test."""
    seen: list[str] = []
    commands = ScriptedCommands(programs=["rbd"]).on("rbd", stdout="all")
    commands.on(
        "rbd", "map", "*/name", stdout="/dev/rbd0", effect=lambda argv: seen.append(argv[2])
    )
    assert (await commands.run(["rbd", "ls"], timeout=PATIENCE)).text == "all"
    assert (await commands.run(["rbd", "map", "p/name"], timeout=PATIENCE)).text == "/dev/rbd0"
    with pytest.raises(AssertionError, match="nobody scripted: mount"):
        await commands.run(["mount"], timeout=PATIENCE)
    assert seen == ["p/name"]
    assert commands.ran == ["rbd ls", "rbd map p/name", "mount"]
    assert (commands.find("rbd"), commands.find("mount")) == ("/usr/bin/rbd", "")
