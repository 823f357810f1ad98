"""Contract of the Interactive port: usage, logs and commands, for the technologies that have them.

Subclass ``InteractiveSuite`` and give it a ``talk`` fixture that returns an ``InteractiveBench``.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence

import pytest

from persys_agent.runtimes.port import ExecExit, ExecOutput, RuntimeFailedError
from persys_agent.testing.runtime_bench import (
    PATIENCE_SECONDS,
    InteractiveRuntime,
    RuntimeBench,
    closing,
    order_of,
    removing,
    until_state,
)
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.spec import WorkloadSpec

__all__ = ["InteractiveBench", "InteractiveSuite"]


_LASTING = "trap 'exit 0' TERM; sleep 600 & wait"
"""Ends at once when it is asked to."""


class InteractiveBench(RuntimeBench):
    """A bench whose workloads have a shell (``sh -c``, with ``cat`` and ``sleep``)."""

    interactive: InteractiveRuntime
    """``runtime``, with all that it can do."""

    @abstractmethod
    def script(self, text: str) -> WorkloadSpec:
        """What runs ``text`` in a shell, and ends with it."""


async def given(*parts: bytes) -> AsyncIterator[bytes]:
    """An input of these parts, none for an input that is at its end."""
    for part in parts:
        yield part


async def _ran(
    bench: InteractiveBench,
    workload_id: WorkloadId,
    command: Sequence[str],
    given_input: AsyncIterator[bytes],
    *,
    tty: bool = False,
) -> tuple[dict[str, bytes], int]:
    """What a command wrote by stream, and its code."""
    written: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    code = -1
    async with asyncio.timeout(PATIENCE_SECONDS):
        running = bench.interactive.execute(workload_id, command, given_input, tty=tty)
        async for item in running:
            match item:
                case ExecOutput(data, stream):
                    written[stream] += data
                case ExecExit(code):
                    pass
    return written, code


async def _texts(bench: InteractiveBench, name: WorkloadId, tail: int, follow: bool) -> list[str]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return [line.text async for line in bench.interactive.logs(name, tail=tail, follow=follow)]


async def _started(bench: InteractiveBench, name: WorkloadId, script: str) -> None:
    await bench.runtime.create(order_of(name, bench.script(script)))
    await bench.runtime.start(name)


@pytest.mark.slow
@pytest.mark.asyncio
class InteractiveSuite:
    """Give it a ``talk`` fixture."""

    async def test_logs_are_the_last_lines(self, talk: InteractiveBench) -> None:
        """``tail`` counts lines from the end; streams and times are told."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, "echo one; echo two; echo three")
                await until_state(talk.runtime, name, AgentState.STOPPED)
                assert await _texts(talk, name, 2, False) == ["two", "three"]
                assert await _texts(talk, name, 0, False) == []
                lines = [line async for line in talk.interactive.logs(name, tail=9, follow=False)]
                assert all(line.at is not None for line in lines)

    async def test_streams_are_told_apart(self, talk: InteractiveBench) -> None:
        """Each line says whether it was written as output or as error."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, "echo good; echo bad >&2")
                await until_state(talk.runtime, name, AgentState.STOPPED)
                lines = [line async for line in talk.interactive.logs(name, tail=9, follow=False)]
                found = {(line.text, line.stream) for line in lines}
                assert found == {("good", "stdout"), ("bad", "stderr")}

    async def test_following_ends_with_the_workload(self, talk: InteractiveBench) -> None:
        """Lines arrive as they are written, and the iterator ends when the workload does."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, "echo first; sleep 0.4; echo last")
                assert await _texts(talk, name, 5, True) == ["first", "last"]

    async def test_following_can_be_given_up(self, talk: InteractiveBench) -> None:
        """Closing the iterator ends it while the workload goes on."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, f"echo first; {_LASTING}")
                lines = talk.interactive.logs(name, tail=5, follow=True)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert (await anext(lines)).text == "first"
                    pending = asyncio.ensure_future(anext(lines))
                    await asyncio.sleep(0)
                    pending.cancel()
                    await asyncio.wait([pending])
                await until_state(talk.runtime, name, AgentState.RUNNING)

    async def test_a_command_answers(self, talk: InteractiveBench) -> None:
        """Output and errors of a command arrive apart, and its code is the last item."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, _LASTING)
                command = ["sh", "-c", "echo out; echo err >&2; exit 7"]
                written, code = await _ran(talk, name, command, given())
                assert written == {"stdout": b"out\n", "stderr": b"err\n"}
                assert code == 7

    async def test_a_command_reads(self, talk: InteractiveBench) -> None:
        """A command reads what it is given, and sees the end of it."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, _LASTING)
                written, code = await _ran(talk, name, ["cat"], given(b"hello ", b"there"))
                assert written["stdout"] == b"hello there"
                assert code == 0

    async def test_a_command_has_a_terminal_if_it_wants_one(self, talk: InteractiveBench) -> None:
        """With ``tty`` the command sees a terminal, and the end of its input as one gives it."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, _LASTING)
                command = ["sh", "-c", "test -t 0 && cat && echo end; exit 5"]
                written, code = await _ran(talk, name, command, given(b"typed\n"), tty=True)
                assert b"typed" in written["stdout"]
                assert b"end" in written["stdout"]
                assert code == 5

    async def test_giving_up_ends_the_command(self, talk: InteractiveBench) -> None:
        """A command whose iterator is closed is not left running inside."""
        async with closing(talk):
            name = talk.new_id()
            async with removing(talk.runtime, name):
                await _started(talk, name, _LASTING)
                running = talk.interactive.execute(
                    name, ["sh", "-c", "echo begun; exec sleep 4321"], given()
                )
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await anext(running) == ExecOutput(b"begun\n")
                    await running.aclose()  # type: ignore[attr-defined]  # as generators have it
                    while b"4321" in await _processes(talk, name):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

    async def test_what_is_not_there_has_nothing_to_say(self, talk: InteractiveBench) -> None:
        """Logs of, and commands in, what does not exist or does not run are refused."""
        async with closing(talk):
            with pytest.raises(RuntimeFailedError):
                await _texts(talk, talk.new_id(), 5, False)
            with pytest.raises(RuntimeFailedError):
                await _ran(talk, talk.new_id(), ["true"], given())

    async def test_usage_is_of_what_runs(self, talk: InteractiveBench) -> None:
        """Usage is of running instances, of the time since the last call, and takes no time."""
        async with closing(talk):
            busy, idle = talk.new_id("busy"), talk.new_id("idle")
            async with removing(talk.runtime, busy, idle):
                await _started(talk, busy, "trap 'exit 0' TERM; while true; do :; done")
                await talk.runtime.create(order_of(idle, talk.script("true")))
                await until_state(talk.runtime, busy, AgentState.RUNNING)
                await talk.interactive.usage()
                await asyncio.sleep(0.3)
                usage = await talk.interactive.usage()
                assert set(usage) == {busy}
                assert usage[busy].cpu_percent > 10
                assert usage[busy].memory_bytes > 0
                assert usage[busy].source


async def _processes(bench: InteractiveBench, name: WorkloadId) -> bytes:
    """The command lines of all that runs inside."""
    command = ["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"]
    written, _ = await _ran(bench, name, command, given())
    return written["stdout"]
