"""Compose's command line: which one is there, and how it is called for a project.

Decided here: the order in which the commands are tried (v2 as a plugin of ``docker``, then v1), and
the environment that they get: nothing of the agent's but where programs and the daemon are. What a
spec calls a variable stands in the project's ``.env``, where it can name no library to load.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from attrs import frozen

from persys_agent.commands import CommandError, CommandResult, Commands, CommandTimeoutError
from persys_agent.runtimes.compose.failures import compose_failure, reason
from persys_agent.runtimes.compose.folder import COMPOSE_FILE, ENV_FILE, OVERLAY_FILE, ProjectFolder
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError, RuntimeUnavailableError
from persys_core.model.secrets import scrubbed

__all__ = ["ComposeCommand", "ComposeProgram", "bare_environment"]

_CANDIDATES = (("docker", "compose"), ("docker-compose",))
_VERSION_TIMEOUT = timedelta(seconds=20)
_LOOKED_AT = 64 * 1024


@frozen
class ComposeProgram:
    """A Compose that answered."""

    argv: tuple[str, ...]
    version: str

    @property
    def is_v1(self) -> bool:
        """Whether it is the one written in Python."""
        return self.version.startswith("1.")


class ComposeCommand:
    """Finds Compose once, and calls it."""

    def __init__(self, commands: Commands, settings: ComposeSettings, endpoint: str) -> None:
        self._commands, self._settings, self._endpoint = commands, settings, endpoint
        self._found: ComposeProgram | None = None

    async def program(self) -> ComposeProgram:
        """The Compose of this host. Raises ``RuntimeUnavailableError`` where there is none."""
        if self._found is None:
            chosen = shlex.split(self._settings.binary)
            candidates = [tuple(chosen)] if chosen else _CANDIDATES
            for argv in candidates:
                if version := await self._version(argv):
                    self._found = ComposeProgram(argv, version)
                    return self._found
            tried = ", ".join(map(shlex.join, candidates))
            raise RuntimeUnavailableError(
                f"there is no Compose here (tried {tried}): install docker-compose or the plugin"
            )
        return self._found

    def forget(self) -> None:
        """Look for it anew with the next call."""
        self._found = None

    async def run(
        self,
        folder: ProjectFolder,
        project: str,
        words: Sequence[str],
        timeout: timedelta,
        hidden: frozenset[str] = frozenset(),
    ) -> str:
        """Call it for a project, for what it prints: which may have secrets in it. Raises
        ``RuntimeFailedError`` without the ``hidden`` values."""
        program = await self.program()
        argv = [*program.argv, *_place(folder, project), *words]
        try:
            result = await self._run(argv, folder.path, timeout)
        except CommandTimeoutError:
            code = FailureCode.IMAGE_PULL_TIMEOUT if "up" in words else FailureCode.RUNTIME_ERROR
            raise RuntimeFailedError(
                code, f"Compose did not finish within {timeout.total_seconds():g} s"
            ) from None
        except CommandError as error:
            self.forget()
            raise RuntimeUnavailableError(f"Compose cannot be run: {error}") from error
        if result.code:
            stdout, stderr = _text(result.stdout), _text(result.stderr)
            output = f"{stderr}\n{stdout}"
            told = scrubbed(reason(stderr, stdout), hidden)
            raise RuntimeFailedError(compose_failure(output), f"Compose: {told}")
        return result.stdout.decode(errors="replace")

    async def _version(self, argv: Sequence[str]) -> str:
        try:
            result = await self._run([*argv, "version", "--short"], Path("/"), _VERSION_TIMEOUT)
        except CommandError:
            return ""
        return result.text.removeprefix("v") if result.ok else ""

    async def _run(self, argv: Sequence[str], cwd: Path, timeout: timedelta) -> CommandResult:
        return await self._commands.run(
            argv, env=self._environment(), cwd=str(cwd), timeout=timeout
        )

    def _environment(self) -> dict[str, str]:
        environment = {
            "DOCKER_HOST": self._endpoint,
            "COMPOSE_ANSI": "never",
            "COMPOSE_PROGRESS": "plain",
        }
        if self._settings.images.registry_config:
            environment["DOCKER_CONFIG"] = str(Path(self._settings.images.registry_config).parent)
        return environment


def bare_environment() -> dict[str, str]:
    """All that Compose gets of the agent's own environment, since files may name what it has."""
    names = {"PATH": os.defpath, "HOME": "/"}
    return {name: os.environ.get(name, default) for name, default in names.items()}


def _text(output: bytes) -> str:
    return output[-_LOOKED_AT:].decode(errors="replace")


def _place(folder: ProjectFolder, project: str) -> Sequence[str]:
    env = ("--env-file", str(folder.path / ENV_FILE)) if folder.has_env() else ()
    return (
        *("--project-name", project, "--project-directory", str(folder.path)),
        *("--file", str(folder.path / COMPOSE_FILE), "--file", str(folder.path / OVERLAY_FILE)),
        *env,
    )
