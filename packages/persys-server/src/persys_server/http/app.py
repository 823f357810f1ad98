"""The three pages. ``/health`` is always 200: it says how this replica is, not whether to kill it.

Decided here: paths, status codes and field names (``status``, ``mode``, ``reason`` and
``modeChangedAt`` are those of the reference). What is true is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from aiohttp import web

from persys_core.model.replica import ReplicaRecord
from persys_server.observability.tracing import NoTraces, Traces
from persys_server.replica import ReplicaProbe, ReplicaState, shard_words

__all__ = ["MetricsPage", "http_app"]

MetricsPage: TypeAlias = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Makes the text of ``/metrics`` and its content type, from what the caller accepts."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_UNREADY = 503
_BROKEN = 500


def http_app(
    probe: ReplicaProbe, metrics_page: MetricsPage, traces: Traces | None = None
) -> web.Application:
    """The application."""
    followed = traces or NoTraces()

    async def health(request: web.Request) -> web.Response:
        return web.json_response(_health(probe()))

    async def readyz(request: web.Request) -> web.Response:
        state = probe()
        return web.json_response(_readiness(state), status=200 if state.is_ready else _UNREADY)

    async def metrics(request: web.Request) -> web.Response:
        body, content_type = await metrics_page(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    for path, handler in (("/health", health), ("/readyz", readyz), ("/metrics", metrics)):
        app.router.add_get(path, _followed(path, handler, followed))
    return app


def _followed(path: str, handler: Handler, traces: Traces) -> Handler:
    """``handler`` within a span of its own."""

    async def serve(request: web.Request) -> web.StreamResponse:
        span = traces.page(path, _headers(request))
        code = _BROKEN
        try:
            with span.current():
                answer = await handler(request)
            code = answer.status
            return answer
        finally:
            span.end(code, failed=code == _BROKEN)

    return serve


def _headers(request: web.Request) -> Iterator[tuple[str, str]]:
    return ((name.lower(), value) for name, value in request.headers.items())


def _health(state: ReplicaState) -> Mapping[str, object]:
    return {
        "status": "ok",
        "mode": str(state.mode),
        "reason": state.mode_reason,
        "modeChangedAt": _second(state.mode_changed_at),
        **_standing(state),
    }


def _readiness(state: ReplicaState) -> Mapping[str, object]:
    return {
        "ready": state.is_ready,
        "notReadyReason": state.not_ready_reason,
        "phase": str(state.phase),
        "mode": str(state.mode),
        "reason": state.mode_reason,
        **_standing(state),
        "loopAgeSeconds": {name: round(age, 3) for name, age in state.loop_ages.items()},
    }


def _standing(state: ReplicaState) -> Mapping[str, object]:
    """This replica among the others; clients find all of them here without DNS."""
    at = state.standing
    return {
        "instance": at.instance_id,
        "role": at.role,
        "leader": at.leader_id,
        "haMode": str(at.ha_mode),
        "shard": at.shard,
        "replicas": [_replica(each) for each in at.replicas],
        "coverage": {
            "owned": at.owned_nodes,
            "unowned": at.unowned_nodes,
            "doublyOwned": at.doubly_owned_nodes,
        },
        "foreignLeader": at.foreign_leader,
        "problems": list(state.problems),
    }


def _replica(record: ReplicaRecord) -> Mapping[str, object]:
    return {
        "instance": record.instance_id,
        "address": record.address,
        "version": record.version,
        "haMode": str(record.ha_mode),
        "shard": shard_words(record),
        "since": _second(record.registered_at),
    }


def _second(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
