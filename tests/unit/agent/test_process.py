from __future__ import annotations

import asyncio
import json
import re
import signal
import sys

import pytest

COMMAND = (sys.executable, "-m", "persys_agent", "run", "--runtime", "simulated", "--insecure")


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_process_cleanly(number: signal.Signals) -> None:
    """It starts, serves its control interface, and ends with 0 and no traceback."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--nodes",
        "2",
        "--standalone",
        "--control-port",
        "0",
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        seen = await process.stderr.readuntil(b"event='started'")
        found = re.search(rb"http://127\.0\.0\.1:(\d+)", seen)
        assert found is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
        writer.write(b"GET /nodes HTTP/1.1\r\n\r\n")
        body = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
        await writer.wait_closed()
        assert len(json.loads(body)["nodes"]) == 2
        process.send_signal(number)
        rest = await process.stderr.read()
        assert await process.wait() == 0
    assert b"event='stopped'" in rest
    assert b"Traceback" not in rest


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_start_that_fails_ends_with_one() -> None:
    """A host that is not this machine's is an error with a text, not a traceback."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--standalone", "--listen", "192.0.2.1", stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        _, text = await process.communicate()
    assert process.returncode == 1
    assert b"persys-agent: cannot listen on 192.0.2.1" in text
    assert b"Traceback" not in text


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_it_still_loads_ends_it_well(number: signal.Signals) -> None:
    """Who is told to end before it has begun ends with 0, as later, and says nothing."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "importtime", *COMMAND[1:], "--standalone"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        await process.stderr.readuntil(b" structlog.exceptions\n")  # and much is still to come
        process.send_signal(number)
        rest = await process.stderr.read()
        assert await process.wait() == 0
    assert b"event='started'" not in rest
    assert b"Traceback" not in rest
