"""What is asked before anything of an application is made, and before anything made is started.

Decided here: when a project is looked at, and by whose word. Before Compose makes anything it tells
what it understands of the files, and that is held to the same rules as the files themselves: what
is refused then leaves what runs alone. What the Engine shows of the project is looked at last, also
where somebody else made it, or an agent that died before it could look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.compose.application import check_resolved
from persys_agent.runtimes.compose.escapes import check_made, sockets
from persys_agent.runtimes.compose.remains import PROJECT
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.compose.states import service_of
from persys_agent.runtimes.compose.sums import Hold
from persys_agent.runtimes.docker.documents import Document, text, texts
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.labels import WORKLOAD
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["Guard"]


@frozen
class Guard:
    """Holds projects on the daemon of ``engine`` to what the operator allows."""

    engine: Engine
    settings: ComposeSettings

    async def check_resolved(self, resolved: str, folder: Path, hold: Hold) -> None:
        """Raises ``RuntimeFailedError`` for what Compose understands of the files."""
        await asyncio.to_thread(
            check_resolved, resolved, folder, hold, self.settings, self.engine.endpoint
        )

    async def check_made(self, project: str) -> None:
        """Raises ``RuntimeFailedError`` where a container of the project may not be started."""
        made = await self.containers(project)
        for each in made:
            if WORKLOAD not in texts(each, "Config", "Labels"):
                raise RuntimeFailedError(
                    FailureCode.INVALID_SPEC,
                    f"Compose made a container {text(each, 'Name')} of no service that stands"
                    " plainly in the file; write each service out under services",
                )
        if not self.settings.allow_privileged:
            volumes = await self.engine.shown_volumes({PROJECT: project})
            named = [(service_of(each), each) for each in made]
            check_made(named, volumes, sockets(self.engine.endpoint))

    async def containers(self, project: str) -> Sequence[Document]:
        """All of the project, whoever made them."""
        found = await self.engine.containers({PROJECT: project})
        shown = [await self.engine.show(text(each, "Id")) for each in found]
        return [each for each in shown if each is not None]
