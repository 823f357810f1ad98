"""A demonstration's real nodes, and the Docker daemon that they share.

Decided here: how long an image may take, and that nothing is removed but what carries this
demonstration's mark, or that of one that was killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from persys_agent.node.fleet import FleetPlace, Member, NodeFleet
from persys_agent.runtimes.docker.documents import text, texts
from persys_agent.runtimes.docker.engine import Engine, EngineError
from persys_agent.runtimes.docker.labels import CLUSTER, MANAGED
from persys_agent.runtimes.docker.sweep import sweep
from persys_agent.runtimes.port import RuntimeUnavailableError
from persys_core.model.errors import PersysError
from persys_core.model.states import WorkloadType
from persys_core.sim.agent_settings import AgentSettings
from persys_server.dev.machines import REAL_PREFIX, machines
from persys_server.dev.marks import own_mark, parsed_mark

__all__ = ["DockerDaemon", "real_nodes"]

_PULL_SECONDS = 300.0
_ANSWER_SECONDS = 5.0


class DockerDaemon:
    """Implements ``runtimes.Daemon``."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    async def version(self) -> str:
        """Its version. Raises ``PersysError`` where it does not answer."""
        async with self._engine() as engine:
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    return text(await engine.version(), "Version")
            except (EngineError, TimeoutError) as error:
                raise RuntimeUnavailableError(
                    f"the Docker daemon at {self._endpoint} cannot be used: {error}"
                ) from error

    async def provide(self, image: str, say: Callable[[str], None]) -> str:
        """Have an image on the host; why that cannot be, or nothing."""
        async with self._engine() as engine:
            try:
                if await engine.has_image(image):
                    return ""
                say(f"Image {image} is being pulled.")
                async with asyncio.timeout(_PULL_SECONDS):
                    await engine.pull(image, None)
            except TimeoutError:
                return f"not pulled within {_PULL_SECONDS:g} s"
            except (EngineError, PersysError) as error:
                return str(error)
        return ""

    async def clear_away(self) -> int:
        """Remove what demonstrations left that were killed; how many containers."""
        here = own_mark()

        def is_over(cluster_id: str) -> bool:
            mark = parsed_mark(cluster_id)
            return mark is not None and mark.is_over(here)

        async with self._engine() as engine:
            return await sweep(engine, is_over)

    @asynccontextmanager
    async def _engine(self) -> AsyncIterator[Engine]:
        try:
            engine = Engine(self._endpoint)
        except ValueError as error:
            raise RuntimeUnavailableError(f"{self._endpoint}: {error}") from error
        try:
            yield engine
        finally:
            await engine.aclose()


@asynccontextmanager
async def real_nodes(
    endpoint: str, scheduler: str, folder: Path, count: int
) -> AsyncIterator[NodeFleet]:
    """So many nodes of the simulated ones' kinds; all that they made is removed at the end."""
    place = FleetPlace(endpoint, scheduler, folder, own_mark().text)
    prefix = await _prefix(endpoint)
    async with NodeFleet(place) as fleet:
        kinds = machines(count, prefix)
        await asyncio.gather(*(fleet.add(_member(each)) for each in kinds))
        yield fleet


async def _prefix(endpoint: str) -> str:
    """What the nodes are called: plainly, unless another demonstration's may be called so, since
    containers have their nodes' names in theirs."""
    engine = Engine(endpoint)
    try:
        found = await engine.containers({MANAGED: "true", CLUSTER: ""})
    finally:
        await engine.aclose()
    marks = (parsed_mark(texts(each, "Labels").get(CLUSTER, "")) for each in found)
    return f"{REAL_PREFIX}{os.getpid()}" if any(marks) else REAL_PREFIX


def _member(kind: AgentSettings) -> Member:
    return Member(
        node_id=kind.node_id,
        cpu_millicores=kind.cpu_millicores,
        memory_mb=kind.memory_mb,
        labels=kind.labels,
        runs_compose=WorkloadType.COMPOSE in kind.workload_types,
    )
