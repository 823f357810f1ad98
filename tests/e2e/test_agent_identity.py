"""Two agents with one node id, as programs: a copy of a machine takes no node away."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.e2e.agents import RealAgent, real_agent
from tests.e2e.processes import eventually, free_port, run_program, server
from tests.servers.dockerd import Dockerd

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]

_REFUSED = "another agent has this node's id"


def _health(port: int) -> dict[str, object]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        return dict(json.load(error))


async def _doctor(agent: RealAgent, metrics_port: int) -> list[dict[str, str]]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PERSYS_")}
    env |= {
        "PERSYS_NODE_ID": agent.node_id,
        "PERSYS_SCHEDULER_ADDR": agent.scheduler,
        "PERSYS_AGENT_DATA_DIR": str(agent.folder / "data"),
        "PERSYS_METRICS_PORT": str(metrics_port),
    }
    ended = await run_program("persys-agent", "doctor", "--json", "--insecure", env=env)
    found: list[dict[str, str]] = json.loads(ended.out)["findings"]
    return found


async def test_a_copy_of_a_machine_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    """It says why, stays alive, and has the node once the first was silent for its lease."""
    nothing = cast(Dockerd, SimpleNamespace(endpoint=f"unix://{tmp_path}/none.sock"))
    metrics_port = free_port()
    (tmp_path / "copy").mkdir()
    async with (
        server(tmp_path, SCHEDULER_HEARTBEAT_INTERVAL="1s") as running,
        real_agent("n1", nothing, running.address, tmp_path) as first,
    ):
        await eventually(lambda: "registered" in first.text, "the first registers")
        async with real_agent(
            "n1",
            nothing,
            running.address,
            tmp_path / "copy",
            PERSYS_METRICS_PORT=str(metrics_port),
        ) as copy:
            await eventually(lambda: _REFUSED in copy.text, "the copy is refused")
            assert f"127.0.0.1:{first.port}" in copy.text
            assert f"127.0.0.1:{copy.port}" in copy.text
            health = _health(metrics_port)
            assert health["status"] == "unhealthy"
            assert "PERSYS_NODE_ID" in str(health["reason"])
            found = await _doctor(copy, metrics_port)
            (word,) = (each for each in found if each["check"] == "agent")
            assert word["verdict"] == "fail"
            assert "registration refused" in word["found"]
            assert copy.program.process.returncode is None

            await first.kill()
            await eventually(lambda: "registered" in copy.text, "the copy gets in", seconds=30)
            assert _health(metrics_port)["status"] == "healthy"
    assert copy.text.count(_REFUSED) == 1
