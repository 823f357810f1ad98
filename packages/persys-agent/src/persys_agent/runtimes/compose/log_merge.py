"""The logs of several containers as one: what there is in the order of time, then what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.log_lines import container_lines
from persys_agent.runtimes.port import LogLine

__all__ = ["merged_lines"]

_AHEAD = 100
_EARLIEST = datetime.min.replace(tzinfo=UTC)


async def merged_lines(
    engine: Engine, containers: Mapping[str, str], tail: int, *, follow: bool
) -> AsyncGenerator[LogLine, None]:
    """The last ``tail`` lines of all containers (ids with their services) together, then with
    ``follow`` those to come, until the last of them ends."""
    ends = await asyncio.gather(
        # One line at least, to know from where on to follow.
        *(_end_of(engine, each, service, max(1, tail)) for each, service in containers.items())
    )
    if tail > 0:
        for line in sorted((line for end in ends for line in end), key=_at)[-tail:]:
            yield line
    if follow:
        last = [max(map(_at, end), default=None) for end in ends]
        places = list(zip(containers, containers.values(), last, strict=True))
        async with aclosing(_followed(engine, places)) as lines:
            async for line in lines:
                yield line


def _at(line: LogLine) -> datetime:
    return line.at or _EARLIEST


async def _end_of(engine: Engine, container: str, service: str, tail: int) -> list[LogLine]:
    lines = container_lines(engine, container, tail, follow=False, source=service)
    async with aclosing(lines):
        return [line async for line in lines]


async def _followed(
    engine: Engine, places: Sequence[tuple[str, str, datetime | None]]
) -> AsyncGenerator[LogLine, None]:
    queue: asyncio.Queue[LogLine | None] = asyncio.Queue(_AHEAD)

    async def feed(container: str, service: str, after: datetime | None) -> None:
        try:
            lines = container_lines(
                engine, container, None, follow=True, source=service, since=after
            )
            async with aclosing(lines):
                async for line in lines:
                    if after is None or _at(line) > after:
                        await queue.put(line)
        finally:
            if not cancelled:
                await queue.put(None)

    cancelled = False
    tasks = [asyncio.create_task(feed(*place)) for place in places]
    try:
        for _ in tasks:
            while (line := await queue.get()) is not None:
                yield line
        await asyncio.gather(*tasks)
    finally:
        cancelled = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
