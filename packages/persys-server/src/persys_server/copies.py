"""The event log and the telemetry of one replica: copies for people, in Redis where it is set.

Decided here: that a replica starts and serves without waiting for Redis, whatever state Redis is
in. Without Redis both live in this replica's memory, and its client is not even imported.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

import structlog

from persys_adapters.redis.address import SENTINEL_PORT, RedisTarget, RedisTls, address_of
from persys_adapters.redis.fallback import ReconciliationFallback
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.model.errors import PersysError
from persys_core.ports.clock import Clock
from persys_core.ports.events import EventLog
from persys_core.ports.observer import Observer
from persys_core.ports.telemetry import Telemetry
from persys_server.settings import Settings

__all__ = ["RedisFileError", "open_copies", "redis_target"]

_log = structlog.stdlib.get_logger("persys_server.copies")


class RedisFileError(PersysError):
    """A file for TLS towards Redis cannot be read; the text says which."""


async def open_copies(
    settings: Settings,
    clock: Clock,
    observer: Observer,
    stack: AsyncExitStack,
    fallback: ReconciliationFallback | None = None,
) -> tuple[EventLog, Telemetry]:
    """Both; ``stack`` closes them. ``fallback`` takes reconcile outcomes that Redis cannot take."""
    target = redis_target(settings)
    if target is None:
        return MemoryEventLog(settings.event_max_entries, clock), MemoryTelemetry(clock=clock)
    _check_files(settings)
    _log.info("events and telemetry are copied to Redis", redis=_place(target))
    # The client brings along much that a replica without Redis has no use for.
    from persys_server.redis_copies import open_redis  # noqa: PLC0415

    return await open_redis(target, settings, clock, observer, stack, fallback)


def redis_target(settings: Settings) -> RedisTarget | None:
    """Where Redis is; ``None`` where it is not set."""
    if not settings.redis_addr and not settings.redis_sentinels:
        return None
    tls = RedisTls(settings.redis_tls_ca, settings.redis_tls_cert, settings.redis_tls_key)
    return RedisTarget(
        address=address_of(settings.redis_addr) if settings.redis_addr else None,
        sentinels=tuple(address_of(each, SENTINEL_PORT) for each in settings.redis_sentinels),
        master_name=settings.redis_master_name,
        username=settings.redis_username,
        password=settings.redis_password,
        sentinel_username=settings.redis_sentinel_username,
        sentinel_password=settings.redis_sentinel_password,
        db=settings.redis_db,
        tls=tls if settings.redis_tls_enabled else None,
    )


def _check_files(settings: Settings) -> None:
    """Redis may come later; a file that is missing at the start is a mistake."""
    for name, path in (
        ("REDIS_TLS_CA", settings.redis_tls_ca),
        ("REDIS_TLS_CERT", settings.redis_tls_cert),
        ("REDIS_TLS_KEY", settings.redis_tls_key),
    ):
        if path and not os.access(path, os.R_OK):
            raise RedisFileError(
                f"{name}={path} cannot be read: name a PEM file that this user may read, or unset"
                f" {name}"
            )


def _place(target: RedisTarget) -> str:
    if target.address is not None:
        return f"{target.address.host}:{target.address.port}"
    return f"master {target.master_name} of {len(target.sentinels)} sentinels"
