"""The event log and the telemetry in Redis, as the settings want them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.event_log import EventOptions, RedisEventLog
from persys_adapters.redis.fallback import ReconciliationFallback
from persys_adapters.redis.telemetry import RedisTelemetry, TelemetryOptions
from persys_core.ports.clock import Clock
from persys_core.ports.observer import Observer
from persys_server.settings import Settings

__all__ = ["open_redis"]


async def open_redis(
    target: RedisTarget,
    settings: Settings,
    clock: Clock,
    observer: Observer,
    stack: AsyncExitStack,
    fallback: ReconciliationFallback | None,
) -> tuple[RedisEventLog, RedisTelemetry]:
    """Both, writing until ``stack`` is closed; nothing is waited for."""
    kept = EventOptions(settings.event_max_entries, settings.redis_event_ttl)
    events = await RedisEventLog.open(target, clock, observer, stack, kept)
    telemetry = await RedisTelemetry.open(
        target, clock, observer, stack, _telemetry_options(settings), fallback
    )
    return events, telemetry


def _telemetry_options(settings: Settings) -> TelemetryOptions:
    return TelemetryOptions(
        ttl=settings.redis_reconcile_ttl,
        history_entries=settings.event_max_entries,
        meter_stream=settings.meter_stream if settings.meter_stream_enabled else "",
        meter_entries=settings.meter_stream_max_entries,
    )
