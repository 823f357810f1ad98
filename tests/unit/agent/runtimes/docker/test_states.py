"""What the Engine shows becomes the states, messages and metadata of agents in the field."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from persys_agent.runtimes.docker.states import LastWords, instance
from persys_agent.runtimes.port import Instance
from persys_core.model.observation import AgentState
from persys_core.model.spec import PortMapping

NEVER = "0001-01-01T00:00:00Z"
BEGAN = "2026-05-01T10:00:00.123456789Z"
ENDED = "2026-05-01T12:00:00.5+02:00"


def of(status: str, lines: str = "", code: int = 0, error: str = "", **state: object) -> Instance:
    shown = {
        "Id": "0123456789abcdef",
        "RestartCount": 2,
        "Config": {"Image": "app:1", "Env": ["TOKEN=hush-hush"], "Labels": {}},
        "HostConfig": {"Memory": 64 * 1024 * 1024},
        "State": {
            "Status": status,
            "ExitCode": code,
            "Error": error,
            "StartedAt": BEGAN,
            "FinishedAt": ENDED if status in {"exited", "dead", "restarting"} else NEVER,
            **state,
        },
    }
    return instance("w", shown, LastWords(lines))


@pytest.mark.parametrize(
    ("found", "state", "message", "exit_code"),
    [
        (of("running"), AgentState.RUNNING, "running", None),
        (of("restarting", code=3), AgentState.PENDING, "restarting", 3),
        (of("paused"), AgentState.STOPPED, "paused", None),
        (of("created"), AgentState.STOPPED, "created", None),
        (of("removing"), AgentState.STOPPED, "removing", None),
        (of("exited"), AgentState.STOPPED, "exited", 0),
        (of("exited", code=3), AgentState.FAILED, "exited with code 3", 3),
        (of("exited", "a\nb\n\n", 3), AgentState.FAILED, "exited with code 3: b", 3),
        (of("exited", "b", 3, "oops"), AgentState.FAILED, "exited with code 3: oops", 3),
        (of("created", code=127, error="no"), AgentState.FAILED, "exited with code 127: no", 127),
        (of("dead", code=1, error="oops"), AgentState.FAILED, "dead: oops", 1),
        (
            of("exited", code=137, OOMKilled=True),
            AgentState.FAILED,
            "exited with code 137: out of memory (limit 64 MB)",
            137,
        ),
        (
            of("running", Health={"Status": "starting"}),
            AgentState.PENDING,
            "running; its health check has not passed yet",
            None,
        ),
        (
            of("running", Health={"Status": "unhealthy", "Log": [{"Output": "x"}]}),
            AgentState.RUNNING,
            "unhealthy: x",
            None,
        ),
        (of("running", Health={"Status": "healthy"}), AgentState.RUNNING, "running", None),
    ],
)
def test_states(found: Instance, state: AgentState, message: str, exit_code: int | None) -> None:
    """Each status of the Engine is one state, with the code only after an end."""
    assert (found.state, found.message, found.exit_code) == (state, message, exit_code)
    assert ("container.exit_code" in found.metadata) == (exit_code is not None)


def test_times_are_of_utc_and_never_is_none() -> None:
    """The Engine's nanoseconds and zones are read; its zero time is no time."""
    ended = of("exited")
    assert ended.started_at == datetime(2026, 5, 1, 10, 0, 0, 123456, UTC)
    assert ended.finished_at == datetime(2026, 5, 1, 10, 0, 0, 500000, UTC)
    assert of("running").finished_at is None
    assert of("created", StartedAt=NEVER).started_at is None


def test_secrets_are_in_no_text() -> None:
    """What the container was given as a secret is masked where it wrote it out."""
    found = of("exited", "bad token hush-hush", 1)
    assert found.message == "exited with code 1: bad token ***"
    assert found.metadata["container.stderr"] == "bad token ***"


def test_ports_are_those_that_are_bound() -> None:
    """Both addresses of one port count once, and what is not bound does not count."""
    shown = {
        "State": {"Status": "running"},
        "NetworkSettings": {
            "Ports": {
                "80/tcp": [
                    {"HostIp": "0.0.0.0", "HostPort": "8080"},
                    {"HostIp": "::", "HostPort": "8080"},
                    {"HostIp": "0.0.0.0", "HostPort": "32768"},
                ],
                "53/udp": [{"HostIp": "0.0.0.0", "HostPort": "53"}],
                "443/tcp": None,
            }
        },
    }
    found = instance("w", shown, LastWords())
    assert found.ports == (
        PortMapping(53, 53, "udp"),
        PortMapping(8080, 80, "tcp"),
        PortMapping(32768, 80, "tcp"),
    )
    assert found.metadata["container.ports"] == "53->53/udp, 8080->80/tcp, 32768->80/tcp"


def test_what_the_engine_leaves_out_is_empty() -> None:
    """An answer without any detail is read without an error."""
    found = instance("w", {}, LastWords())
    assert (found.state, found.ports, found.exit_code) == (AgentState.STOPPED, (), None)
    assert found.metadata == {"container.restart_count": "0"}
