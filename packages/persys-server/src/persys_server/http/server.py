"""The HTTP server: listening and stopping."""

from __future__ import annotations

from aiohttp import web

from persys_server.grpc.server import PortTakenError

__all__ = ["HttpServer"]

_SHUTDOWN_SECONDS = 5.0


class HttpServer:
    """One listening server. ``port`` is the bound port, also where 0 was asked for."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; ``PortTakenError`` where that is not possible."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, reuse_port=False)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise PortTakenError("HTTP", host, port, "METRICS_PORT or --metrics-port") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Let requests in flight end, for some seconds."""
        await self._runner.cleanup()
