"""What `deploy/` watches: its metrics exist on a real replica, and a real Prometheus takes it all.

Prometheus itself comes with `./dev test --system`; without it only the names are compared.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from persys_proto.control.v1 import control_pb2 as pb
from tests.e2e.processes import (
    Server,
    agents,
    client,
    container,
    free_port,
    quick_node,
    scraped,
    server,
    watching,
)

pytestmark = pytest.mark.slow

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD = DEPLOY / "grafana" / "persys.json"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
JOB = "persys-scheduler"
_NAME = re.compile(r"\b(?:persys_scheduler|process|python)_[a-z_]+")
_SUFFIX = re.compile(r"_(?:total|bucket|sum|count)$")
# Prometheus makes it itself.
_OF_PROMETHEUS = {"up"}


def dashboard_expressions() -> Iterator[str]:
    """Every expression of the dashboard, its variables filled in."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    for target in (target for panel in panels for target in panel.get("targets", ())):
        expression: str = target["expr"]
        yield (
            expression.replace("$job", JOB)
            .replace("$workload", ".*")
            .replace("$__rate_interval", "1m")
        )


def alert_expressions() -> Iterator[str]:
    """Every expression of the alerts."""
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["expr"]


@asynccontextmanager
async def busy_replica(folder: Path) -> AsyncIterator[Server]:
    """A replica with a node and a workload whose utilisation was reported."""
    async with (
        server(folder) as running,
        agents(running.address, quick_node("n1")),
        watching(running.address) as eye,
        client(running.address) as stub,
    ):
        await stub.ApplyWorkload(container("w1"), timeout=5)
        assert await eye.until(
            lambda seen: [each.HasField("usage") for each in seen.workloads] == [True], 20
        )
        yield running


@pytest.mark.asyncio
async def test_every_metric_that_is_watched_exists(tmp_path: Path) -> None:
    """Dashboard and alerts name no metric that a real replica does not show; the page is good in
    both formats."""
    async with busy_replica(tmp_path) as running:
        plain, open_text = await scraped(running), await scraped(running, OPENMETRICS)
    shown, shown_open = families(plain_families, plain), families(open_families, open_text)
    assert shown == shown_open
    expressions = [*dashboard_expressions(), *alert_expressions()]
    named = {name for each in expressions for name in _NAME.findall(each)}
    assert len(named) > 25
    assert {name for name in named if _SUFFIX.sub("", name) not in shown and name not in shown} == (
        set()
    )
    usage = 'persys_scheduler_workload_memory_bytes{node_id="n1",type="container",workload_id="w1"}'
    assert usage in plain


def families(parse: Any, text: str) -> set[str]:
    """The names on a page, without the endings that the formats treat differently."""
    return {_SUFFIX.sub("", family.name) for family in parse(text)}


async def missed(running: Server) -> None:
    """Ask for what is not there, so that there are failed requests to show."""
    async with client(running.address) as stub:
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetWorkload(pb.GetWorkloadRequest(workload_id="nobody"), timeout=5)


def program(name: str) -> str:
    """The path of a program of the Debian package ``prometheus``; skips where it is not there."""
    found = shutil.which(name)
    if found is None:
        if "prometheus" in os.environ.get("PERSYS_REQUIRE", "").split(","):
            pytest.fail(f"{name} is required and not installed")
        pytest.skip(f"{name} is not installed; ./dev test --system installs it")
    return found


@pytest.mark.system
@pytest.mark.parametrize(
    ("what", "file"),
    [
        (("check", "config"), "prometheus.yml"),
        (("check", "rules"), "alerts.yml"),
        (("test", "rules"), "alerts_test.yml"),
    ],
)
def test_promtool_is_content(what: tuple[str, str], file: str) -> None:
    """The scrape configuration and the rules are valid, and the alerts fire when they should."""
    command = [program("promtool"), *what, file]
    run = subprocess.run(
        command, cwd=ALERTS.parent, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr


@asynccontextmanager
async def prometheus(folder: Path, target: int) -> AsyncIterator[int]:
    """A Prometheus with our rules that scrapes a replica every second; its port."""
    binary, port = program("prometheus"), free_port()
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    configuration["rule_files"] = [str(ALERTS)]
    configuration["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{target}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    log = folder / "prometheus.log"
    with log.open("wb") as sink:
        process = await asyncio.create_subprocess_exec(
            binary,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=sink,
            stderr=sink,
        )
    try:
        yield port
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def ask(port: int, path: str, **parameters: str) -> Any:
    """What Prometheus answers; ``None`` while it does not."""
    query = urllib.parse.urlencode(parameters)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/api/v1/{path}?{query}", timeout=5) as answer:
            return json.loads(answer.read())["data"]
    except OSError:
        return None


@pytest.mark.system
@pytest.mark.asyncio
async def test_a_real_prometheus_answers_the_dashboard(tmp_path: Path) -> None:
    """It scrapes a real replica without complaint, answers each expression of the dashboard with
    numbers, evaluates the alerts, and none of them fires on a healthy cluster."""
    program("prometheus")
    async with (
        busy_replica(tmp_path) as running,
        prometheus(tmp_path, running.metrics_port) as port,
    ):

        async def answered(expression: str) -> bool:
            found = await asyncio.to_thread(ask, port, "query", query=expression)
            return bool(found and found["result"])

        waiting = [f'up{{job="{JOB}"}} == 1', *dashboard_expressions()]
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                while waiting:
                    waiting = [each for each in waiting if not await answered(each)]
                    await missed(running)
        assert waiting == []
        rules = await asyncio.to_thread(ask, port, "rules")
        judged = [rule for group in rules["groups"] for rule in group["rules"]]
        assert len(judged) == len(list(alert_expressions()))
        assert {rule["health"] for rule in judged} <= {"ok", "unknown"}
        assert [rule["name"] for rule in judged if rule["state"] == "firing"] == []
        targets = await asyncio.to_thread(ask, port, "targets")
        assert [each["lastError"] for each in targets["activeTargets"]] == [""]
