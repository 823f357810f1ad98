"""`persysctl exec`: bytes in and out, and whose exit code is whose."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.agent import Place
from persysctl.client import Client
from persysctl.errors import RefusedError
from persysctl.exit_codes import ExitCode
from persysctl.settings import ServerSettings
from persysctl.standard_input import chunks, no_chunks
from tests.unit.ctl.agents import FakeAgent, serving, with_web
from tests.unit.ctl.harness import FakeScheduler, Refusal, Result, ask, call, served

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from persys_proto.agent.v1.agent_pb2_grpc import _ServicerContext as Context

STDOUT, STDERR = wire.ExecResponse(stdout=b"out\xc3"), wire.ExecResponse(stderr=b"err")


def ending(*answers: wire.ExecResponse) -> FakeAgent:
    """An agent whose commands answer this."""

    async def answer(_: wire.ExecStart, __: bytes) -> Sequence[wire.ExecResponse]:
        return answers

    return FakeAgent(answers=answer)


def with_code(code: int) -> wire.ExecResponse:
    """The last answer."""
    return wire.ExecResponse(exit_code=code)


async def execute(agent: FakeAgent, *argv: str, stdin: str = "") -> Result:
    """One call of `exec web`."""
    async with serving(agent) as endpoint:
        return await ask(with_web(endpoint), "exec", "web", *argv, stdin=stdin)


@pytest.mark.asyncio
async def test_streams_and_code_are_the_commands() -> None:
    """Each stream goes to its own, also a character cut in two; the code is the command's."""
    agent = ending(STDOUT, STDERR, wire.ExecResponse(stdout=b"\xa4\n"), with_code(3))
    result = await execute(agent, "--", "ls", "-l", "--", "-x")
    assert result == Result(3, "outä\n", "err")
    assert agent.started == [wire.ExecStart(id="web", command=["ls", "-l", "--", "-x"])]


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (137, 137), (255, 255), (-1, 255), (256, 255)])
@pytest.mark.asyncio
async def test_no_failure_becomes_a_success(code: int, ours: int) -> None:
    """A code that a process cannot end with is 255, never what its last bits say."""
    assert (await execute(ending(with_code(code)), "--", "x")).code == ours


@pytest.mark.asyncio
async def test_input_is_passed_on_with_i_only() -> None:
    """With -i the command gets standard input and its end; without, it gets the end at once."""
    assert (await execute(FakeAgent(), "-i", "--", "cat", stdin="hällo")).out == "hällo"
    assert (await execute(FakeAgent(), "--", "cat", stdin="hällo")).out == ""


@pytest.mark.asyncio
async def test_a_terminal_for_the_command_alone() -> None:
    """-t without -i asks for a terminal and takes none of ours."""
    agent = FakeAgent()
    assert (await execute(agent, "-t", "--", "top")).code == ExitCode.DONE
    assert agent.started == [wire.ExecStart(id="web", command=["top"], tty=True)]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("exec web", "the command is missing; write it behind --"),
        ("exec web --", "the command is missing"),
        ("exec web ls -l", "unrecognized arguments: ls"),
        ("exec web -it -- sh", "-t with -i needs a terminal at standard input"),
        ("exec web --tyt -- sh", "did you mean '--tty'?"),
        ("exec -- ls", "required: WORKLOAD"),
        ("exec web --server http://x -- ls", "without a scheme"),
    ],
)
@pytest.mark.asyncio
async def test_wrong_usage_is_125(line: str, part: str) -> None:
    """Wrong usage of exec ends with 125, so that it is not taken for the command's 3."""
    fake = FakeScheduler()
    result = await ask(fake, *line.split())
    assert result.code == ExitCode.EXEC_FAILED
    assert part in result.err
    assert fake.asked == []


@pytest.mark.parametrize(
    ("code", "part"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "of an older release"),
        (grpc.StatusCode.NOT_FOUND, "does not have this workload: why"),
        (grpc.StatusCode.FAILED_PRECONDITION, "cannot do this: why"),
        (grpc.StatusCode.PERMISSION_DENIED, "does not allow this: why"),
    ],
)
@pytest.mark.asyncio
async def test_a_refusal_is_125(code: grpc.StatusCode, part: str) -> None:
    """What an agent refuses was never run."""
    result = await execute(FakeAgent(refusal=Refusal(code, "why")), "--", "x")
    assert result.code == ExitCode.EXEC_FAILED
    assert part in result.err


@pytest.mark.asyncio
async def test_other_failures_of_ours_are_125() -> None:
    """Nobody there, no such workload, and a call that ends without a code."""
    away = await ask(with_web("127.0.0.1:1"), "exec", "web", "--", "x")
    unknown = await ask(FakeScheduler(), "exec", "web", "--", "x")
    nobody = await call("exec", "web", "--server", "127.0.0.1:1", "--", "x")
    cut = await execute(ending(STDOUT), "--", "x")
    assert {away.code, unknown.code, nobody.code, cut.code} == {ExitCode.EXEC_FAILED}
    assert "cannot be reached from here" in away.err
    assert "ended the call without the command's exit code" in cut.err


class InHaste(FakeAgent):
    """Has seen enough after the first input, and ends the command while more comes."""

    async def Exec(
        self, request_iterator: AsyncIterator[wire.ExecRequest], context: Context
    ) -> AsyncIterator[wire.ExecResponse]:
        async for request in request_iterator:
            if request.input:
                break
        for _ in range(20):
            yield wire.ExecResponse(stdout=b"x" * 5000)
        yield with_code(3)


@pytest.mark.parametrize(
    "agent", [InHaste(), FakeAgent(refusal=Refusal(grpc.StatusCode.NOT_FOUND, "no web"))]
)
@pytest.mark.asyncio
async def test_input_under_way_does_not_hide_the_outcome(agent: FakeAgent) -> None:
    """Where a command ends or is refused while input is being sent, its answers and its code or
    the reason still come through."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    async with serving(agent) as endpoint, Client(ServerSettings(endpoint), 5) as client:
        for _ in range(30):
            async with client.agent_at(Place("n1", endpoint)) as asked:
                answers = asked.execute(wire.ExecStart(id="web"), endless())
                if agent.refusal:
                    with pytest.raises(RefusedError, match="no web"):
                        await anext(answers)
                else:
                    found = [each async for each in answers]
                    assert (len(found), found[-1]) == (21, with_code(3))


# ------------------------------------------------------------------ standard input


async def read(stream: io.TextIOBase) -> bytes:
    """Everything that comes in."""
    assert isinstance(stream, io.StringIO | io.TextIOWrapper)
    return b"".join([each async for each in chunks(stream)])


@pytest.mark.asyncio
async def test_files_and_texts_are_read_to_their_end(tmp_path: Path) -> None:
    """A file, which no event loop can wait for, comes byte for byte; so does a device."""
    path = tmp_path / "input"
    path.write_bytes(b"\x00\xff" * 50_000)
    with path.open() as file, open(os.devnull) as nothing:  # noqa: ASYNC230
        assert await read(file) == path.read_bytes()
        assert await read(nothing) == b""
    assert await read(io.StringIO("ä")) == b"\xc3\xa4"
    assert [each async for each in no_chunks()] == []


@pytest.mark.asyncio
async def test_a_pipe_is_passed_on_as_it_comes() -> None:
    """What comes in is passed on before more does; the end of the pipe is the end."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream:
        source = chunks(stream)
        os.write(writing, b"one")
        assert await anext(source) == b"one"
        waiting = asyncio.ensure_future(anext(source, b""))
        os.write(writing, b"two")
        assert await waiting == b"two"
        os.close(writing)
        assert await anext(source, b"end") == b"end"


# ---------------------------------------------------------------------- processes


@asynccontextmanager
async def running(
    agent: FakeAgent, *options: str, stdin: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of `exec web … -- sh`; killed at the end, whatever happened."""
    async with serving(agent) as endpoint, served(with_web(endpoint)) as address:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "persysctl", "exec", "web", "--server", address, *options, "--", "sh"),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            async with asyncio.timeout(100):
                yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


@pytest.mark.parametrize("ending_by", ["command", "signal"])
@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_terminal_is_handed_over_and_given_back(ending_by: str) -> None:
    """While the command runs every key is its own, Ctrl-C too; afterwards the terminal is as it
    was, also where a signal ended persysctl."""
    agent = FakeAgent()
    master, slave = pty.openpty()
    try:
        before = termios.tcgetattr(slave)
        async with running(agent, "-i", "-t", stdin=slave) as process:
            await agent.began.wait()
            local = termios.tcgetattr(slave)[3]
            assert not local & (termios.ICANON | termios.ECHO | termios.ISIG)
            if ending_by == "command":
                os.write(master, b"a\x03\r\x04")
            else:
                process.send_signal(signal.SIGTERM)
            out, err = await process.communicate()
        expected = (0, b"a\x03\r\x04") if ending_by == "command" else (-signal.SIGTERM, b"")
        assert (process.returncode, out, err) == (*expected, b"")
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_ctrl_c_leaves_the_agent() -> None:
    """Without a terminal of its own Ctrl-C ends the command: the agent sees its caller leave; 130,
    although standard input has not ended."""
    agent = FakeAgent()
    async with running(agent, "-i", stdin=asyncio.subprocess.PIPE) as process:
        await agent.began.wait()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == ExitCode.INTERRUPTED
        await agent.left.wait()
        assert process.stderr is not None
        assert await process.stderr.read() == b""
