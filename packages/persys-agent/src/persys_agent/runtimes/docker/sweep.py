"""Removes all that clusters made on a daemon: for demos and tests, whose clusters end.

Decided here: what belongs to a cluster. Containers are found by its label; networks, which Compose
makes without our labels, and control groups, by the projects of those containers. Agents never call
this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from persys_agent.commands import HostCommands
from persys_agent.runtimes.compose.cgroups import CGROUPS, CgroupTree
from persys_agent.runtimes.compose.sums import SumLimits
from persys_agent.runtimes.docker.documents import Document, text, texts
from persys_agent.runtimes.docker.engine import NOT_FOUND, Engine, EngineError
from persys_agent.runtimes.docker.labels import CLUSTER, MANAGED, NODE
from persys_core.model.errors import PersysError

__all__ = ["LeftoversError", "power_off", "sweep"]

_PROJECT = "com.docker.compose.project"
_TRIES = 20
_PAUSE_SECONDS = 0.2
_CONFLICT = 409
"""A removal is under way already, or a network has still to lose its last container."""


class LeftoversError(PersysError):
    """Something could not be removed."""


async def power_off(engine: Engine, cluster_id: str, node_id: str) -> None:
    """Stop what a node runs at once and without a word, as a loss of power does."""
    marks = {MANAGED: "true", CLUSTER: cluster_id, NODE: node_id}
    running = await engine.containers(marks, running=True)
    await asyncio.gather(*(_lenient(engine.stop(text(each, "Id"), 0)) for each in running))


async def sweep(
    engine: Engine, is_meant: Callable[[str], bool], projects: Iterable[str] = ()
) -> int:
    """Remove all of the clusters whose id ``is_meant``, and what is left of the Compose
    ``projects``; how many containers there were.

    Raises ``LeftoversError``, or ``RuntimeUnavailableError`` where the daemon is away.
    """
    count, known = 0, set(projects)
    clusters: set[str] = set()
    for _ in range(_TRIES):
        found = await _containers(engine, is_meant)
        count = max(count, len(found))
        known |= {texts(each, "Labels").get(_PROJECT, "") for each in found} - {""}
        clusters |= {texts(each, "Labels").get(CLUSTER, "") for each in found}
        results = await _removed(engine, found, known, clusters)
        if all(results) and not await _containers(engine, is_meant):
            sums = SumLimits(engine, HostCommands(), CgroupTree(CGROUPS))
            await asyncio.gather(*map(sums.release, filter(sums.is_there, sorted(known))))
            return count
        await asyncio.sleep(_PAUSE_SECONDS)
    raise LeftoversError(
        f"not all could be removed from Docker: look for containers with the label {CLUSTER}"
        f" = {', '.join(sorted(clusters))}"
    )


async def _containers(engine: Engine, is_meant: Callable[[str], bool]) -> list[Document]:
    found = await engine.containers({MANAGED: "true", CLUSTER: ""})
    return [each for each in found if is_meant(texts(each, "Labels").get(CLUSTER, ""))]


async def _removed(
    engine: Engine, found: Iterable[Document], projects: Iterable[str], clusters: Iterable[str]
) -> list[bool]:
    """Containers first, since they hold the others; true for each thing that is gone now."""
    done = await asyncio.gather(
        *(_lenient(engine.delete(text(each, "Id"), with_volumes=True)) for each in found)
    )
    marks = [{_PROJECT: each} for each in projects]
    networks = [name for mark in marks for name in await engine.networks(mark)]
    marks += [{CLUSTER: each} for each in clusters]
    volumes = {name for mark in marks for name in await engine.volumes(mark)}
    return [
        *done,
        *await asyncio.gather(*(_lenient(engine.delete_network(each)) for each in networks)),
        *await asyncio.gather(*(_lenient(engine.delete_volume(each)) for each in volumes)),
    ]


async def _lenient(call: Awaitable[None]) -> bool:
    """Whether it was done; what is gone already is."""
    try:
        await call
    except EngineError as error:
        if error.status == NOT_FOUND:
            return True
        if error.status == _CONFLICT:
            return False
        raise LeftoversError(f"Docker refuses: {error}") from error
    return True
