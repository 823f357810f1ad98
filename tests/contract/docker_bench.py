"""Docker as a bench for the suites of the Runtime port."""

from __future__ import annotations

from collections.abc import Sequence

from persys_agent.runtimes.docker.documents import text
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.runtime import DockerRuntime
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import Owner
from persys_agent.testing.interactive import InteractiveBench
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from tests.servers.dockerd import IMAGE, Dockerd

__all__ = ["LASTING", "MISSING_IMAGE", "NEIGHBOUR", "OWNER", "DockerBench", "container"]

OWNER = Owner("node-1", "cluster-1")
NEIGHBOUR = Owner("node-2", "cluster-1")
LASTING = "trap 'exit 0' TERM; sleep 600 & wait"
"""Ends at once when it is asked to."""
MISSING_IMAGE = "127.0.0.1:1/missing:1"
"""Of a registry that nobody is at: no test asks the world."""


def container(
    script: str = LASTING,
    *,
    image: str = IMAGE,
    resources: Resources = Resources(),
    metadata: dict[str, str] | None = None,
    body: ContainerSpec | None = None,
) -> WorkloadSpec:
    """A container that runs ``script``, or that of ``body``."""
    chosen = body or ContainerSpec(image, ("sh", "-c", script))
    return WorkloadSpec(WorkloadType.CONTAINER, resources, chosen, metadata or {})


class DockerBench(InteractiveBench):
    """Two agents on one daemon."""

    def __init__(self, daemon: Dockerd, settings: DockerSettings) -> None:
        self._daemon, self._settings = daemon, settings
        self._handed_out: list[DockerRuntime] = []
        self.interactive = self.runtime = self.of(OWNER)
        self.neighbour = self.of(NEIGHBOUR)
        self.engine = Engine(daemon.endpoint)

    def of(self, owner: Owner, endpoint: str = "") -> DockerRuntime:
        """A runtime of this owner."""
        made = DockerRuntime(endpoint or self._daemon.endpoint, owner, self._settings)
        self._handed_out.append(made)
        return made

    def lasting(self) -> WorkloadSpec:
        return container()

    def stubborn(self) -> WorkloadSpec:
        return container("exec sleep 600")

    def ending(self, code: int) -> WorkloadSpec:
        return container(f"exit {code}")

    def missing(self) -> WorkloadSpec:
        return container(image=MISSING_IMAGE)

    def script(self, text: str) -> WorkloadSpec:
        return container(text)

    async def again(self) -> DockerRuntime:
        return self.of(OWNER)

    async def unreachable(self) -> DockerRuntime:
        return self.of(OWNER, "unix:///nonexistent/docker.sock")

    async def leftovers(self, workload_id: str) -> Sequence[str]:
        label = {"persys.workload_id": workload_id}
        found = await self.engine.containers(label)
        return [text(each, "Id") for each in found]

    async def aclose(self) -> None:
        await self.engine.aclose()
        for each in self._handed_out:
            await each.aclose()
