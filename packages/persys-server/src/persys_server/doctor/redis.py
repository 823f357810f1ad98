"""What is looked at in Redis: whether it answers. A server runs without it, so it only warns."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

from persys_adapters.redis.address import RedisTarget
from persys_adapters.redis.trouble import RedisTroubleError, advice_for
from persys_server.copies import redis_target
from persys_server.doctor.findings import Finding, Verdict
from persys_server.settings import Settings

__all__ = ["examine_redis"]


def examine_redis(settings: Settings) -> Iterator[Finding]:
    """One line where Redis is set. Nothing is written."""
    target = redis_target(settings)
    if target is None:
        return
    if missing := list(_missing(target)):
        advice = "name files that this user may read; run does not start without them"
        yield Finding("redis", Verdict.FAIL, f"cannot be read: {', '.join(missing)}", advice)
        return
    try:
        asyncio.run(_ask(target))
    except (RedisTroubleError, OSError, ValueError) as error:
        yield Finding("redis", Verdict.WARN, str(error), advice_for(error))
    else:
        yield Finding("redis", Verdict.OK, "it answers; events and telemetry are copied there")


def _missing(target: RedisTarget) -> Iterator[str]:
    tls = target.tls
    files = (tls.ca_file, tls.cert_file, tls.key_file) if tls else ()
    return (file for file in files if file and not os.access(file, os.R_OK))


async def _ask(target: RedisTarget) -> None:
    # The client brings along much that a set-up without Redis has no use for.
    from persys_adapters.redis.link import RedisLink  # noqa: PLC0415

    link = RedisLink(target)
    try:
        await link.call("PING")
    finally:
        await link.aclose()
