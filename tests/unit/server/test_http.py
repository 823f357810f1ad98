"""The three pages over HTTP."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest
from aiohttp.test_utils import TestClient, TestServer

from persys_core.model.replica import HaMode, ReplicaRecord
from persys_core.model.states import OperatingMode
from persys_server.http.app import http_app
from persys_server.http.server import HttpServer
from persys_server.phase import Phase, PhaseSwitch
from persys_server.replica import ReplicaState
from tests.unit.server.fakes import standing

SINCE = datetime(2026, 3, 4, 7, 6, 7, 999, tzinfo=timezone(timedelta(hours=2)))


STANDBY = standing(role="standby", leader_id="replica-2", owned_nodes=0)
SHOWN = {
    "instance": "replica-1", "role": "standby", "leader": "replica-2",
    "haMode": "failover", "shard": "",
    "replicas": [
        {"instance": "replica-1", "address": "10.0.0.1:8085", "version": "0.1.0",
         "haMode": "failover", "shard": "", "since": "2026-03-04T05:06:07Z"},
        {"instance": "replica-2", "address": "", "version": "",
         "haMode": "failover", "shard": "", "since": "2026-03-04T05:06:07Z"},
    ],
    "coverage": {"owned": 0, "unowned": 0, "doublyOwned": 0}, "foreignLeader": "", "problems": [],
}  # fmt: skip


def state(**changes: object) -> ReplicaState:
    values: dict[str, object] = {
        "standing": STANDBY, "phase": Phase.SERVING, "mode": OperatingMode.NORMAL,
        "mode_reason": "startup", "mode_changed_at": SINCE,
        "loop_ages": {"reconcile": 1.23456},
    }  # fmt: skip
    return ReplicaState(**(values | changes))  # type: ignore[arg-type]


async def page(accept: str) -> tuple[bytes, str]:
    return b"some_metric 1\n", "text/plain; version=0.0.4; charset=utf-8"


def client(**changes: object) -> TestClient:  # type: ignore[type-arg]
    return TestClient(TestServer(http_app(lambda: state(**changes), page)))


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", list(OperatingMode))
@pytest.mark.parametrize("phase", list(Phase))
async def test_health_is_always_200(mode: OperatingMode, phase: Phase) -> None:
    """The seed: status, mode, reason and modeChangedAt, whatever the mode is."""
    async with client(mode=mode, phase=phase) as http:
        answer = await http.get("/health")
        assert answer.status == 200
        assert answer.content_type == "application/json"
        assert await answer.json() == {
            "status": "ok", "mode": str(mode), "reason": "startup",
            "modeChangedAt": "2026-03-04T05:06:07Z", **SHOWN,
        }  # fmt: skip


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({}, 200, ""),
        ({"mode": OperatingMode.DEGRADED}, 200, ""),
        ({"mode": OperatingMode.RECOVERY, "standing": standing()}, 200, ""),
        ({"standing": standing(role="joining", ha_mode=HaMode.ELASTIC)}, 200, ""),
        ({"standing": standing(foreign_leader="go-1", unowned_nodes=2)}, 200, ""),
        ({"phase": Phase.STARTING}, 503, "starting"),
        ({"phase": Phase.STOPPING}, 503, "stopping"),
        ({"has_snapshot": False}, 503, "no snapshot of the state store yet"),
    ],
)
async def test_readiness_is_about_serving_only(
    changes: dict[str, object], status: int, reason: str
) -> None:
    """503 only where this replica cannot serve; mode, leader and loops stand in the body."""
    async with client(**changes) as http:
        answer = await http.get("/readyz")
        body = await answer.json()
        assert answer.status == status
        assert (body["ready"], body["notReadyReason"]) == (status == 200, reason)
        assert body["loopAgeSeconds"] == {"reconcile": 1.235}
        assert {"mode", "phase"} <= set(body)
        assert set(SHOWN) <= set(body)


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["/health", "/readyz"])
async def test_a_standing_that_is_not_whole_is_told(path: str) -> None:
    """A foreign leader is named, and so are nodes that nobody or two replicas act for (L05)."""
    record = ReplicaRecord("replica-3", SINCE, "0.1.0", HaMode.ACTIVE_ACTIVE, 3, 2, "c:1")
    torn = standing(
        ha_mode=HaMode.ACTIVE_ACTIVE,
        shard="1/3",
        replicas=(record,),
        unowned_nodes=4,
        doubly_owned_nodes=1,
        foreign_leader="go-1",
    )
    async with client(standing=torn) as http:
        body = await (await http.get(path)).json()
    assert (body["haMode"], body["shard"]) == ("active-active", "1/3")
    assert body["replicas"][0]["shard"] == "2/3"
    assert body["coverage"] == {"owned": 2, "unowned": 4, "doublyOwned": 1}
    assert body["foreignLeader"] == "go-1"
    assert body["problems"] == [
        "mutations refused: another scheduler leads (go-1)",
        "nodes without an owner: 4",
        "nodes with two owners: 1",
    ]


@pytest.mark.asyncio
async def test_metrics_are_text() -> None:
    """Prometheus finds its own content type."""
    async with client() as http:
        answer = await http.get("/metrics")
        assert await answer.text() == "some_metric 1\n"
        assert answer.headers["Content-Type"].startswith("text/plain; version=")


@pytest.mark.asyncio
async def test_a_taken_port_is_an_error_that_says_so() -> None:
    """The second server says where, and what to set."""
    first, second = (HttpServer(http_app(state, page)) for _ in range(2))
    await first.start("127.0.0.1", 0)
    with pytest.raises(Exception, match=f"{first.port}.*--metrics-port"):
        await second.start("127.0.0.1", first.port)
    await first.stop()


@pytest.mark.asyncio
async def test_the_phase_moves_one_way() -> None:
    """After a stop nothing serves again."""
    switch = PhaseSwitch()
    seen = [switch.phase]
    for move in (switch.serve, switch.stop, switch.serve):
        move()
        seen.append(switch.phase)
    assert seen == [Phase.STARTING, Phase.SERVING, Phase.STOPPING, Phase.STOPPING]
    await switch.stopping()


@pytest.mark.parametrize(
    "sent", [b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01 nonsense\r\n\r\n"]
)
@pytest.mark.asyncio
async def test_nonsense_is_a_short_line_in_the_log(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that cannot be read is refused with 400, without a traceback or its text."""
    caplog.set_level("INFO")
    server = HttpServer(http_app(state, page))
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(sent)
    assert (await reader.readline()).startswith(b"HTTP/1.0 400")
    writer.close()
    await server.stop()
    records = [record for record in caplog.records if record.name == "persys_server.http"]
    assert all(record.exc_info is None for record in records)
    assert all(len(record.getMessage()) < 200 for record in records)
    assert [record.getMessage()[:20] for record in records] in ([], ["HTTP request refused"])
    assert "aaaa" not in caplog.text
