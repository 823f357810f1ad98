"""Which Compose is called, in which environment, and what its failures are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from persys_agent.commands import CommandResult, CommandTimeoutError, MissingProgramError
from persys_agent.runtimes.compose.command_line import ComposeCommand, bare_environment
from persys_agent.runtimes.compose.folder import Files, ProjectFolder
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError, RuntimeUnavailableError

LONG = timedelta(seconds=5)
V1, V2 = ("docker-compose",), ("docker", "compose")
Answer = CommandResult | Exception


class Programs:
    """A host on which these programs answer their first words so."""

    def __init__(self, answers: Mapping[tuple[str, ...], Answer]) -> None:
        self.answers = dict(answers)
        self.calls: list[tuple[str, ...]] = []
        self.environment: Mapping[str, str] = {}

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout: timedelta,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        input: bytes = b"",
    ) -> CommandResult:
        self.calls.append(tuple(argv))
        self.environment = {**bare_environment(), **(env or {})}
        for words, answer in self.answers.items():
            if tuple(argv[: len(words)]) == words:
                if isinstance(answer, Exception):
                    raise answer
                return answer
        raise MissingProgramError(argv[0])

    def find(self, program: str) -> str:
        return program


def said(code: int, stderr: str = "") -> CommandResult:
    return CommandResult(code, stderr=stderr.encode())


def version(text: str) -> CommandResult:
    return CommandResult(0, f"{text}\n".encode())


def command(programs: Programs, *, binary: str = "", registry_config: str = "") -> ComposeCommand:
    settings = ComposeSettings(
        binary=binary, images=DockerSettings(registry_config=registry_config)
    )
    return ComposeCommand(programs, settings, "unix:///run/d.sock")


@pytest.mark.parametrize(
    ("answers", "argv", "is_v1"),
    [
        ({V2: version("v2.40.0"), V1: version("1.29.2")}, V2, False),
        ({V2: said(1, "no such command"), V1: version("1.29.2")}, V1, True),
        ({V2: CommandTimeoutError("too long"), V1: version("1.29.2")}, V1, True),
        ({V1: version("2.40.0")}, V1, False),
    ],
)
@pytest.mark.asyncio
async def test_the_compose_that_answers(
    answers: Mapping[tuple[str, ...], Answer], argv: tuple[str, ...], is_v1: bool
) -> None:
    """The plugin comes first, then the program; its version says which Compose it really is."""
    found = await command(Programs(answers)).program()
    assert (found.argv, found.is_v1) == (argv, is_v1)


@pytest.mark.asyncio
async def test_the_operators_choice_is_the_only_one() -> None:
    """A command that is set is taken alone; where none answers, it is said what was tried."""
    programs = Programs({V1: version("1.29.2")})
    with pytest.raises(RuntimeUnavailableError, match="tried /opt/compose --debug"):
        await command(programs, binary="/opt/compose --debug").program()


@pytest.mark.asyncio
async def test_it_is_looked_for_once() -> None:
    """A Compose that answered is not asked again until it is forgotten."""
    programs = Programs({V2: version("2.40.0")})
    compose = command(programs)
    await compose.program()
    await compose.program()
    assert len(programs.calls) == 1
    compose.forget()
    await compose.program()
    assert len(programs.calls) == 2


@pytest.mark.asyncio
async def test_a_call_is_for_one_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Project, folder and files are named, variables only where there are some; of the agent's own
    environment Compose gets nothing."""
    monkeypatch.setenv("PERSYS_VAULT_TOKEN", "hush")
    programs = Programs({V2: version("2.40.0"), (*V2, "--project-name"): said(0)})
    programs.answers = dict(reversed(programs.answers.items()))
    compose = command(programs, registry_config="/etc/r/config.json")
    folder = ProjectFolder(tmp_path, "p")
    folder.write(Files("c", "o"))
    await compose.run(folder, "p", ("up", "--no-start"), LONG)
    place = str(tmp_path / "p")
    assert programs.calls[-1] == (
        *("docker", "compose", "--project-name", "p", "--project-directory", place),
        *("--file", f"{place}/compose.yaml", "--file", f"{place}/persys.yaml"),
        *("up", "--no-start"),
    )
    folder.write(Files("c", "o", "A='b'\n"))
    await compose.run(folder, "p", ("stop",), LONG)
    assert programs.calls[-1][-3:] == ("--env-file", f"{place}/.env", "stop")
    assert programs.environment["DOCKER_HOST"] == "unix:///run/d.sock"
    assert programs.environment["DOCKER_CONFIG"] == "/etc/r"
    assert "hush" not in programs.environment.values()


@pytest.mark.asyncio
async def test_failures_are_told_without_secrets(tmp_path: Path) -> None:
    """The code is of what Compose complained about, and hidden values are masked."""
    failed = said(1, "Pulling app\nunauthorized: secret-word is not known\n")
    programs = Programs({(*V1, "version"): version("1.29.2"), V1: failed})
    with pytest.raises(RuntimeFailedError) as raised:
        await command(programs).run(
            ProjectFolder(tmp_path, "p"), "p", ("up",), LONG, frozenset({"secret-word"})
        )
    assert raised.value.code is FailureCode.IMAGE_PULL_AUTH_FAILED
    assert str(raised.value) == "Compose: unauthorized: *** is not known"


@pytest.mark.parametrize(
    ("word", "code"),
    [("up", FailureCode.IMAGE_PULL_TIMEOUT), ("stop", FailureCode.RUNTIME_ERROR)],
)
@pytest.mark.asyncio
async def test_too_long_is_a_failure(tmp_path: Path, word: str, code: FailureCode) -> None:
    """What takes long when an application is made are its images."""
    programs = Programs({(*V1, "version"): version("1.29.2"), V1: CommandTimeoutError("too long")})
    with pytest.raises(RuntimeFailedError, match="within 5 s") as raised:
        await command(programs).run(ProjectFolder(tmp_path, "p"), "p", (word,), LONG)
    assert raised.value.code is code


@pytest.mark.asyncio
async def test_a_compose_that_vanished_is_unavailable(tmp_path: Path) -> None:
    """It is looked for anew with the next call."""
    programs = Programs({V1: version("1.29.2")})
    compose = command(programs)
    await compose.program()
    programs.answers.clear()
    with pytest.raises(RuntimeUnavailableError, match="cannot be run"):
        await compose.run(ProjectFolder(tmp_path, "p"), "p", ("up",), LONG)
    with pytest.raises(RuntimeUnavailableError, match="there is no Compose"):
        await compose.program()
