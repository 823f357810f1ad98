"""What the operator of a node decides about its Compose applications."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.compose.cgroups import CGROUPS
from persys_agent.runtimes.docker.settings import DockerSettings

__all__ = ["ComposeSettings"]


@frozen
class ComposeSettings:
    """How Compose is used.

    ``binary``: the command, such as ``docker compose``; empty for whichever is there.
    ``images``: how the images of services are pulled where Compose does not do it by itself, and
    which ``config.json`` (as ``docker login`` writes it) both take logins from.
    ``private``: folders of the agent that no application may have, beside that of the projects.
    ``cgroups``: where the kernel's control groups are mounted.
    ``up_timeout``: for a creation, with all of its pulls. ``call_timeout``: for everything else.
    """

    binary: str = ""
    allow_privileged: bool = False
    images: DockerSettings = DockerSettings()
    private: tuple[Path, ...] = ()
    cgroups: Path = CGROUPS
    up_timeout: timedelta = timedelta(minutes=15)
    call_timeout: timedelta = timedelta(seconds=60)
    removal_grace: timedelta = timedelta(seconds=10)
    first_sample: timedelta = timedelta(milliseconds=250)
    concurrent_calls: int = 16
