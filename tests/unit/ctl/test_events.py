"""Events: the past, what happens now, and what is lost in between."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.exit_codes import ExitCode
from persysctl.session import Surroundings, run
from tests.unit.ctl.harness import NOW, FakeScheduler, Refusal, ask, at, call, served

pytestmark = pytest.mark.slow


def event(
    number: int, kind: str = "NodeJoined", *, node_id: str = "", reason: str = ""
) -> pb.SchedulerEventView:
    """An event of a second ago."""
    return pb.SchedulerEventView(
        id=str(number), type=kind, timestamp=at(-1), node_id=node_id, reason=reason
    )


EVENTS = [event(1, node_id="n1"), event(2, node_id="n2"), event(3, "NodeLost", node_id="n1")]
AWAY = Refusal(grpc.StatusCode.UNAVAILABLE, "stopping")


@pytest.mark.asyncio
async def test_the_past_oldest_first() -> None:
    """Without --follow the newest are listed, oldest first; filters go to the scheduler."""
    fake = FakeScheduler(events=list(EVENTS))
    argv = ("events", "--type", "T", "--workload", "w", "--node", "n", "--limit", "9")
    result = await ask(fake, *argv)
    assert [line.split()[0] for line in result.out.splitlines()] == ["EVENT", "1", "2", "3"]
    assert fake.asked == [pb.ListEventsRequest(limit=9, type="T", workload_id="w", node_id="n")]


@pytest.mark.asyncio
async def test_after_an_id() -> None:
    """--after-id leaves out what was seen; where the id is not kept, it says so and shows all."""
    fake = FakeScheduler(events=list(EVENTS))
    later = await ask(fake, "events", "--after-id", "2", "-o", "json")
    lost = await ask(fake, "events", "--after-id", "0", "-o", "json")
    assert [each["id"] for each in json.loads(later.out)["items"]] == ["3"]
    assert len(json.loads(lost.out)["items"]) == 3
    assert "event 0 is not among those kept" in lost.err


class Lines(io.StringIO):
    """Standard output that knows how many lines it has, and rings at a number of them."""

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.complete = asyncio.Event()
        self._wanted = wanted

    def write(self, text: str) -> int:
        """Keep the text; ring when there are enough lines."""
        written = super().write(text)
        if self.getvalue().count("\n") >= self._wanted:
            self.complete.set()
        return written


async def follow(fake: FakeScheduler, lines: int, *argv: str) -> tuple[list[str], str]:
    """Follow events until so many lines were printed; the lines, and standard error."""
    out, err = Lines(lines), io.StringIO()
    here = Surroundings(io.StringIO(), out, err, {}, Path("/nonexistent"), lambda: NOW)
    async with served(fake) as address:
        call = run(["events", "--follow", "--server", address, *argv], here)
        running = asyncio.create_task(call)
        await asyncio.wait_for(out.complete.wait(), 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    return out.getvalue().splitlines(), err.getvalue()


@pytest.mark.asyncio
async def test_a_lost_connection_is_resumed_behind_the_last_event() -> None:
    """After a loss the stream goes on after the last event seen: none twice, none left out."""
    fake = FakeScheduler(events=EVENTS[:2])
    fake.live.put_nowait(AWAY)
    after_ids: list[str] = []

    def watch(request: pb.WatchEventsRequest) -> None:
        after_ids.append(request.after_id)
        if len(after_ids) == 2:
            fake.events.append(EVENTS[2])

    fake.on_watch = watch
    lines, err = await follow(fake, 3)
    assert after_ids == ["", "2"]
    assert [line.split()[1:] for line in lines] == [
        ["NodeJoined", "n1"],
        ["NodeJoined", "n2"],
        ["NodeLost", "n1"],
    ]
    assert err == "the scheduler cannot do this now: stopping; trying again in 0.2 s\n"


@pytest.mark.asyncio
async def test_a_gap_is_shown_where_it_is() -> None:
    """EventsLost tells the reader that something is missing at this place."""
    fake = FakeScheduler(events=[event(4, "EventsLost", reason="the log was cut"), event(5)])
    lines, _ = await follow(fake, 2, "--after-id", "1")
    assert fake.asked[-1] == pb.WatchEventsRequest(after_id="1")
    assert "events are missing here; read the present state anew (the log was cut)" in lines[0]
    assert "NodeJoined" in lines[1]


@pytest.mark.asyncio
async def test_a_stream_of_json_is_one_event_per_line() -> None:
    """A program can read the stream line by line."""
    lines, _ = await follow(FakeScheduler(events=list(EVENTS)), 3, "-o", "json")
    assert [json.loads(line)["id"] for line in lines] == ["1", "2", "3"]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED])
@pytest.mark.asyncio
async def test_a_refused_stream_ends(code: grpc.StatusCode) -> None:
    """What a scheduler refuses for good is not asked for again and again."""
    fake = FakeScheduler(refusals={"WatchEvents": Refusal(code)})
    result = await ask(fake, "events", "--follow")
    assert result.code == ExitCode.FAILED
    assert fake.asked == [pb.ListEventsRequest(limit=1), pb.WatchEventsRequest()]


@pytest.mark.asyncio
async def test_a_stopped_scheduler_is_waited_for() -> None:
    """A scheduler that goes away before the first event is no reason to end."""
    fake = FakeScheduler()
    fake.live.put_nowait(Refusal(grpc.StatusCode.CANCELLED))

    def watch(_: pb.WatchEventsRequest) -> None:
        if fake.live.empty():
            fake.events.append(EVENTS[0])

    fake.on_watch = watch
    lines, err = await follow(fake, 1)
    assert "NodeJoined" in lines[0]
    assert "the call was broken off; trying again" in err


@pytest.mark.asyncio
async def test_nobody_to_follow() -> None:
    """A scheduler that was never reached ends the call with 3 instead of trying for ever."""
    result = await call("events", "--follow", "--server", "127.0.0.1:1")
    assert result.code == ExitCode.USAGE_OR_CONNECTION


@pytest.mark.slow
@pytest.mark.asyncio
async def test_ctrl_c_ends_the_process_cleanly() -> None:
    """SIGINT ends persysctl with 130 and without a traceback."""
    fake = FakeScheduler(events=list(EVENTS))
    async with served(fake) as address, following(address) as process:
        assert process.stdout is not None
        for _ in EVENTS:
            assert await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (ExitCode.INTERRUPTED, b"", b"")


@asynccontextmanager
async def following(address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that follows events; killed at the end, whatever happened, so that none stays.

    A machine that is busy may take long to start an interpreter: only hanging is a failure.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "persysctl", "events", "--follow", "--server", address),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        async with asyncio.timeout(180):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
