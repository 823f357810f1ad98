"""The HTTP server: listening and stopping."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from persys_server.grpc.server import PortTakenError

__all__ = ["HttpServer"]

_SHUTDOWN_SECONDS = 5.0
_REASON_LENGTH = 100


class HttpServer:
    """One listening server. ``port`` is the bound port, also where 0 was asked for."""

    def __init__(self, app: web.Application) -> None:
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, logger=_logger()
        )
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


def _logger() -> logging.Logger:
    logger = logging.getLogger("persys_server.http")
    logger.addFilter(_in_one_line)
    return logger


def _in_one_line(record: logging.LogRecord) -> bool:
    """A request that is no HTTP, or too long, is the client's fault: a line, and no traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        # After the colon the library quotes what was sent, which may hold anything.
        first = (error.message or type(error).__name__).partition(":")[0][:_REASON_LENGTH]
        record.msg, record.args, record.exc_info = "HTTP request refused: %s", (first,), None
        record.levelno, record.levelname = logging.INFO, "INFO"
    return True
