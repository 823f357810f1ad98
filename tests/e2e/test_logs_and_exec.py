"""logs, top and exec at the command line: the scheduler says where, the agents answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from persys_server.dev.picture import Picture
from tests.e2e.processes import (
    Program,
    agents,
    client,
    container,
    ctl,
    eventually,
    quick_node,
    server,
    started,
    watching,
)

pytestmark = pytest.mark.slow


@pytest.mark.asyncio
async def test_looking_into_a_workload(tmp_path: Path) -> None:
    """Its output is followed through a move to another node until Ctrl-C; its use is shown; a
    command in a simulated one is refused in words, and a missing workload is, too."""
    async with (
        server(tmp_path) as running,
        agents(running.address, quick_node("n1")) as fleet,
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        await stub.ApplyWorkload(container("web"), timeout=5)
        assert await eye.until(runs, 20)
        here = ("--server", running.address)

        shown, refused, missing, used = await asyncio.gather(
            ctl(running.address, "logs", "web", "--tail", "1", "-o", "json"),
            ctl(running.address, "exec", "web", "--", "ls", "-l"),
            ctl(running.address, "logs", "nobody"),
            ctl(running.address, "top", "nodes", "-o", "json"),
        )
        assert shown.code == 0, shown.err
        (line,) = map(json.loads, shown.out.splitlines())
        assert (line["nodeId"], line["text"]) == ("n1", "simulated workload web started")
        assert refused.code == 125
        assert "node n1 cannot do this: simulated workloads run no commands" in refused.err
        assert missing.code == 1
        assert "nobody" in missing.err
        (node,) = json.loads(used.out)["items"]
        assert node["usage"]["memoryUsedMb"]

        log, env = tmp_path / "follow.log", dict(os.environ)
        argv = ("logs", "web", "--follow", *here)
        async with started("persysctl", *argv, log=log, env=env) as follower:
            await follower.says("web started")
            await fleet.add(settings=quick_node("n2"))
            drained = await ctl(running.address, "node", "drain", "n1", "--wait")
            assert drained.code == 0, drained.err
            await follower.says("web is on n2 now")
            await eventually(lambda: starts(follower) == 2, "the start at the other node")
            follower.signal(signal.SIGINT)
            assert await follower.ended() == 130
        assert "simulated workload web removed" in follower.text

        usage = await ctl(running.address, "top")
        assert usage.out.splitlines()[1].split()[:3] == ["web", "n2", "Running"]


def runs(seen: Picture) -> bool:
    """Whether the scheduler has it running."""
    view = seen.workload("web")
    return view is not None and view.status == "Running"


def starts(follower: Program) -> int:
    """How many starts were heard of."""
    return follower.text.count("web started")
