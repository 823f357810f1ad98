"""The agent's HTTP server: /metrics for Prometheus, /health for whoever watches the process.

Decided here: the two routes. /health tells the truth: 200 while the agent can do its work, else
503, with what each runtime said. Both ask for what is so now. A place that cannot be listened on
ends the start (defect 42).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import structlog
from aiohttp import web
from attrs import field, frozen

from persys_agent.metrics.families import AgentMetrics
from persys_core.model.errors import PersysError
from persys_core.model.mappings import text_map

__all__ = ["CannotListenError", "Health", "MetricsServer"]

_SHUTDOWN_SECONDS = 2.0
_PATIENCE = timedelta(seconds=5)
_OK, _UNAVAILABLE = 200, 503


class CannotListenError(PersysError):
    """Somebody else has the port, or the address is not this machine's."""


@frozen
class Health:
    """How the agent is. ``runtimes`` has a word for each runtime: ``healthy``, or what is wrong;
    ``reason`` is empty where all is well."""

    is_healthy: bool
    reason: str = ""
    runtimes: Mapping[str, str] = field(factory=dict, converter=text_map)


class MetricsServer:
    """``port`` is the bound port, also where 0 was asked for."""

    def __init__(
        self,
        metrics: AgentMetrics,
        health: Callable[[], Awaitable[Health]],
        *,
        refresh: Callable[[], None] | None = None,
    ) -> None:
        """``refresh`` is called before each page, to set gauges."""
        self._metrics = metrics
        self._health = health
        self._refresh = refresh or (lambda: None)
        app = web.Application()
        app.router.add_get("/metrics", self._answer_metrics)
        app.router.add_get("/health", self._answer_health)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            logger=logging.getLogger("persys_agent.metrics"),
        )
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``CannotListenError``."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, reuse_port=False).start()
        except OSError as error:
            await self._runner.cleanup()
            raise CannotListenError(
                f"{host}:{port} cannot be listened on for metrics: {error.strerror}; stop who has"
                " it, or set metrics_addr and metrics_port to something else"
            ) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Let requests in flight end, for some seconds."""
        await self._runner.cleanup()

    async def _answer_metrics(self, request: web.Request) -> web.Response:
        self._refresh()
        body, content_type = self._metrics.page(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _answer_health(self, _: web.Request) -> web.Response:
        health = await self._asked()
        body = {"status": "healthy" if health.is_healthy else "unhealthy"}
        if health.reason:
            body["reason"] = health.reason
        text = json.dumps({**body, "runtimes": dict(health.runtimes)})
        return web.Response(
            text=text + "\n",
            status=_OK if health.is_healthy else _UNAVAILABLE,
            content_type="application/json",
        )

    async def _asked(self) -> Health:
        """An agent that cannot say how it is, is not well."""
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                return await self._health()
        except TimeoutError:
            return Health(False, f"no answer within {_PATIENCE.total_seconds():g} s")
        except Exception:
            structlog.get_logger().exception("bug: health could not be told")
            return Health(False, "health could not be told; see the agent's log")
