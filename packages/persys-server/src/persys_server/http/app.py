"""The three pages. ``/health`` is always 200: it says how this replica is, not whether to kill it.

Decided here: paths, status codes and field names (``status``, ``mode``, ``reason`` and
``modeChangedAt`` are those of the reference). What is true is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from persys_server.replica import ReplicaProbe, ReplicaState

__all__ = ["MetricsPage", "http_app"]

MetricsPage: TypeAlias = Callable[[], Awaitable[bytes]]

_UNREADY = 503


def http_app(probe: ReplicaProbe, metrics_page: MetricsPage) -> web.Application:
    """The application; ``metrics_page`` makes the text of ``/metrics``."""

    async def health(request: web.Request) -> web.Response:
        return web.json_response(_health(probe()))

    async def readyz(request: web.Request) -> web.Response:
        state = probe()
        return web.json_response(_readiness(state), status=200 if state.is_ready else _UNREADY)

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=await metrics_page(), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    return app


def _health(state: ReplicaState) -> Mapping[str, object]:
    return {
        "status": "ok",
        "mode": str(state.mode),
        "reason": state.mode_reason,
        "modeChangedAt": _second(state.mode_changed_at),
        "instance": state.instance_id,
        "role": state.role,
        "leader": state.leader_id,
    }


def _readiness(state: ReplicaState) -> Mapping[str, object]:
    return {
        "ready": state.is_ready,
        "notReadyReason": state.not_ready_reason,
        "phase": str(state.phase),
        "mode": str(state.mode),
        "reason": state.mode_reason,
        "instance": state.instance_id,
        "role": state.role,
        "leader": state.leader_id,
        "loopAgeSeconds": {name: round(age, 3) for name, age in state.loop_ages.items()},
    }


def _second(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
