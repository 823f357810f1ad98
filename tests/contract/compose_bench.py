"""Compose as a bench for the suites of the Runtime port."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from persys_agent.commands import CommandResult, HostCommands
from persys_agent.runtimes.compose.application import project
from persys_agent.runtimes.compose.command_line import bare_environment
from persys_agent.runtimes.compose.runtime import ComposeRuntime
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.docker.documents import text
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.port import Owner
from persys_agent.testing.interactive import InteractiveBench
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from tests.contract.docker_bench import LASTING, MISSING_IMAGE, NEIGHBOUR, OWNER
from tests.servers.dockerd import IMAGE, Dockerd

__all__ = ["ComposeBench", "compose", "service"]

PROJECT = "com.docker.compose.project"


def service(script: str = LASTING, **more: object) -> dict[str, object]:
    """A service that runs ``script``; in a Compose file ``$`` is written twice."""
    command = ["sh", "-c", script.replace("$", "$$")]
    made = {"image": IMAGE, "command": command, "network_mode": "none", **more}
    return {name: value for name, value in made.items() if value is not None}


def compose(
    services: Mapping[str, Mapping[str, object]],
    *,
    env: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    asked: Resources = Resources(),
    **more: object,
) -> WorkloadSpec:
    """An application of these services, which asks for so much in all."""
    body = ComposeSpec(inline_yaml=json.dumps({"services": services, **more}), env=env or {})
    return WorkloadSpec(WorkloadType.COMPOSE, asked, body, metadata or {})


class _Commands(HostCommands):
    """Asks no program twice for its version."""

    def __init__(self) -> None:
        super().__init__(bare_environment())
        self._known: dict[tuple[str, ...], CommandResult] = {}

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        key = tuple(argv)
        if key in self._known:
            return self._known[key]
        result = await super().run(argv, env=env, cwd=cwd, timeout=timeout, input=input)
        if "version" in argv:
            self._known[key] = result
        return result


_COMMANDS = _Commands()


class ComposeBench(InteractiveBench):
    """Two agents on one daemon, with a folder of projects for both."""

    shares_names = False

    def __init__(self, daemon: Dockerd, root: Path, settings: ComposeSettings) -> None:
        self.daemon, self._settings = daemon, settings
        self.root = root
        self._handed_out: list[ComposeRuntime] = []
        self.interactive = self.runtime = self.of(OWNER)
        self.neighbour = self.of(NEIGHBOUR)
        self.engine = Engine(daemon.endpoint)

    def of(self, owner: Owner, endpoint: str = "") -> ComposeRuntime:
        """A runtime of this owner."""
        where = endpoint or self.daemon.endpoint
        made = ComposeRuntime(where, self.root, owner, self._settings, _COMMANDS)
        self._handed_out.append(made)
        return made

    def lasting(self) -> WorkloadSpec:
        return compose({"app": service()})

    def stubborn(self) -> WorkloadSpec:
        return compose({"app": service("exec sleep 600")})

    def ending(self, code: int) -> WorkloadSpec:
        return compose({"app": service(f"exit {code}")})

    def missing(self) -> WorkloadSpec:
        return compose({"app": {"image": MISSING_IMAGE}})

    def script(self, text: str) -> WorkloadSpec:
        return compose({"app": service(text)})

    async def again(self) -> ComposeRuntime:
        return self.of(OWNER)

    async def unreachable(self) -> ComposeRuntime:
        return self.of(OWNER, "unix:///nonexistent/docker.sock")

    async def leftovers(self, workload_id: str) -> Sequence[str]:
        name = project(OWNER, workload_id)
        folders = [each.name for each in self.root.iterdir()] if self.root.exists() else []
        return [
            *(text(each, "Id") for each in await self.engine.containers({PROJECT: name})),
            *await self.engine.networks({PROJECT: name}),
            *await self.engine.volumes({PROJECT: name}),
            *(each for each in folders if each == name),
        ]

    async def aclose(self) -> None:
        await self.engine.aclose()
        for each in self._handed_out:
            await each.aclose()
