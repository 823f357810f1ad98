"""``persys-server run``: logs, adapters and the scheduler put under one replica's life."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from persys_core.control.presence import HaMismatchError
from persys_core.control.scheduler import Scheduler
from persys_core.model.errors import PersysError
from persys_server.backends import open_ports
from persys_server.grpc.server import PortTakenError
from persys_server.lifecycle import run_until_signal
from persys_server.observability.logging import configure_logging
from persys_server.settings import Settings
from persys_server.settings.load import not_acted_on, unknown

__all__ = ["serve"]

_FAILED = 1
_UNUSABLE = 2

_log = structlog.stdlib.get_logger("persys_server.run")


def serve(settings: Settings, environment: Mapping[str, str]) -> int:
    """Serve until a signal; the result is the exit code of the process."""
    configure_logging(settings.log_level, settings.log_format, secrets=settings.secrets)
    _log.warning("TLS is off: everyone who reaches the ports may do everything")
    for name, advice in unknown(environment):
        _log.warning("a variable is set that nobody reads", variable=name, advice=advice)
    for name in not_acted_on(environment):
        _log.warning("a variable is set that this release does not act on", variable=name)
    try:
        asyncio.run(run_until_signal(settings, open_ports, Scheduler))
    except HaMismatchError as error:
        # Its settings would have to change, so a supervisor need not start it again and again.
        _log.error("these settings cannot be used", reason=str(error))
        return _UNUSABLE
    except (PortTakenError, PersysError, OSError) as error:
        _log.error("cannot start or go on", reason=str(error))
        return _FAILED
    return 0
