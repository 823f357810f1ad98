"""Server, agents and command line as three programs that know only each other's addresses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.processes import (
    control,
    ctl,
    eventually,
    free_port,
    run_program,
    server,
    server_environment,
    started,
    watching,
)

pytestmark = pytest.mark.slow
EXAMPLES = str(Path(__file__).parents[2] / "examples")


@pytest.mark.asyncio
async def test_a_day_at_the_command_line(tmp_path: Path) -> None:
    """Apply, look, ask why, cordon and delete; exit codes are those that scripts rely on."""
    control_port = str(free_port())
    async with server(tmp_path) as running, watching(running.address) as eye:
        asked = ("run", "--runtime", "simulated", "--nodes", "5", "--insecure", "--latency", "0.1")
        where = ("--scheduler", running.address, "--control-port", control_port)
        log, env = tmp_path / "agent.log", server_environment(tmp_path)
        async with started("persys-agent", *asked, *where, log=log, env=env) as agent:
            ready = await eye.until(
                lambda seen: [each.status for each in seen.nodes] == ["Ready"] * 5, 20
            )
            assert ready, agent.text

            applied = await ctl(running.address, "apply", "-f", EXAMPLES)
            assert applied.code == 0, applied.err
            assert "big created, Pending: 0/5 nodes" in applied.out
            web = f"{EXAMPLES}/web.yaml"
            waited = await ctl(running.address, "apply", "-f", web, "--wait", "--timeout", "20s")
            assert waited.code == 0, waited.err
            assert "web unchanged" in waited.out
            waits = await ctl(
                running.address, "apply", "-f", f"{EXAMPLES}/big.yaml", "--wait", "--timeout", "1s"
            )
            assert waits.code == 2

            listed = await ctl(running.address, "list", "workloads", "-o", "json")
            assert listed.code == 0
            items = json.loads(listed.out)["items"]
            assert [each["workloadId"] for each in items] == [
                "big", "migrate", "shop", "vm", "web", "worker",
            ]  # fmt: skip
            shown = await ctl(running.address, "get", "workload", "web", "-o", "json")
            view = json.loads(shown.out)
            assert (shown.code, view["status"]) == (0, "Running")
            missing = await ctl(running.address, "get", "workload", "nobody")
            assert missing.code == 1
            assert "nobody" in missing.err

            why = await ctl(running.address, "explain", "big")
            assert "gpu=yes" in why.out
            events = await ctl(running.address, "events", "--workload", "web")
            assert events.code == 0
            assert "WorkloadRunning" in events.out

            node = view["assignedNodeId"]
            cordoned = await ctl(running.address, "node", "cordon", node, "--reason", "new disk")
            assert cordoned.code == 0, cordoned.err
            nodes = await ctl(running.address, "list", "nodes")
            assert "new disk" in nodes.out

            deleted = await ctl(
                running.address, "delete", "workload", "web", "--wait", "--timeout", "20s"
            )
            assert deleted.code == 0, deleted.err
            assert await eye.until(lambda seen: seen.workload("web") is None, 10)
            counted = await control(int(control_port), f"/nodes/{node}")
            assert counted["running"] == len(eye.picture.on_node(node))


@pytest.mark.asyncio
async def test_one_database_has_one_server(tmp_path: Path) -> None:
    """The second one is turned away and told who is there."""
    async with server(tmp_path) as running:
        second = await run_program(
            "persys-server", "run", "--insecure",
            "--grpc-port", str(free_port()), "--metrics-port", str(free_port()),
            env=server_environment(tmp_path),
        )  # fmt: skip
        assert second.code == 1
        assert f"in use by process {running.process.pid}" in second.out
        examined = await run_program("persys-server", "doctor", env=server_environment(tmp_path))
        assert examined.code == 1, "doctor says what run would say"


@pytest.mark.asyncio
async def test_the_doctor_finds_a_good_place(tmp_path: Path) -> None:
    """Where run would start, the exit code is 0."""
    env = server_environment(tmp_path, GRPC_PORT=str(free_port()), METRICS_PORT=str(free_port()))
    examined = await run_program("persys-server", "doctor", env=env)
    assert examined.code == 0, examined.out


@pytest.mark.asyncio
async def test_a_start_without_its_settings_is_refused(tmp_path: Path) -> None:
    """No TLS by accident: the words of the error say what to do; exit code 2."""
    refused = await run_program("persys-server", "run", env=server_environment(tmp_path))
    assert refused.code == 2
    assert "--insecure" in refused.err
    await eventually(lambda: not (tmp_path / "state.db").exists(), "nothing was opened", 1)
