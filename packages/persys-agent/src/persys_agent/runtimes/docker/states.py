"""What the Engine shows of a container, as an ``Instance``.

Decided here: the state, the message and the metadata of each status of the Engine, in the words of
the agents in the field. A health check that has not passed yet is Pending; one that fails leaves
the container Running, with a message that says so: it does run, and nobody restarts it for that.
One that was started again lately says so, and the same whether it runs just now or is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import frozen

from persys_agent.runtimes.docker.documents import (
    Document,
    document,
    flag,
    instant,
    items,
    number,
    text,
    texts,
)
from persys_agent.runtimes.docker.labels import REVISION, SPEC_HASH
from persys_agent.runtimes.port import Instance
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.remarks import unhealthy_text
from persys_core.model.secrets import scrubbed, secret_command_values, secret_env_values
from persys_core.model.spec import PortMapping

__all__ = [
    "SHORT_ID",
    "LastWords",
    "bound_ports",
    "ended_badly",
    "exit_code",
    "instance",
    "last_line",
    "secrets",
]

SHORT_ID = 12
_BYTES_PER_MB = 1024 * 1024
_REASON_CHARACTERS = 300


@frozen
class LastWords:
    """What a failed container wrote last; ``error`` says why that could not be read."""

    lines: str = ""
    error: str = ""


def instance(
    workload_id: WorkloadId, shown: Document, last_words: LastWords, restarts: str = ""
) -> Instance:
    """The instance that the Engine shows; ``restarts`` is what is to be said of those."""
    state, message = _state(shown, last_words, restarts)
    hidden, code = secrets(shown), exit_code(shown)
    labels = texts(shown, "Config", "Labels")
    return Instance(
        workload_id=workload_id,
        revision_id=labels.get(REVISION, ""),
        spec_hash=labels.get(SPEC_HASH, ""),
        state=state,
        message=scrubbed(message, hidden),
        exit_code=code,
        started_at=instant(shown, "State", "StartedAt"),
        finished_at=None if code is None else instant(shown, "State", "FinishedAt"),
        restarts=number(shown, "RestartCount"),
        ports=bound_ports(shown),
        metadata={
            name: scrubbed(value, hidden) for name, value in _metadata(shown, last_words) if value
        },
    )


def secrets(shown: Document) -> frozenset[str]:
    """The secrets that the container was given, which no text of ours may hold."""
    env = document(shown, "Config").get("Env")
    pairs = [str(each).partition("=") for each in env] if isinstance(env, list) else []
    command = document(shown, "Config").get("Cmd")
    words = [str(each) for each in command] if isinstance(command, list) else []
    values = {name: value for name, _, value in pairs}
    return secret_env_values(values) | secret_command_values(words)


def exit_code(shown: Document) -> int | None:
    """How it ended; ``None`` where it never did, or runs again. A start that failed is an end."""
    code = number(shown, "State", "ExitCode")
    match text(shown, "State", "Status"):
        case "exited" | "dead" | "restarting":
            return code
        case "created" if code:
            return code
        case _:
            return None


def ended_badly(shown: Document) -> bool:
    """Whether its last words are worth reading."""
    return bool(exit_code(shown)) or text(shown, "State", "Status") == "dead"


def bound_ports(shown: Document) -> tuple[PortMapping, ...]:
    """The host ports that are really bound; IPv6's are named once with those of IPv4."""
    found = set()
    for key, bindings in document(shown, "NetworkSettings", "Ports").items():
        port, _, protocol = key.partition("/")
        for each in items({"bound": bindings}, "bound"):
            host_port = number(each, "HostPort")
            if host_port and port.isdigit():
                found.add((int(port), host_port, protocol or "tcp"))
    return tuple(PortMapping(host, port, protocol) for port, host, protocol in sorted(found))


def _state(shown: Document, last_words: LastWords, restarts: str) -> tuple[AgentState, str]:
    match text(shown, "State", "Status"):
        case "running":
            return _running(shown, restarts)
        case "restarting":
            return AgentState.PENDING, restarts or "restarting"
        case "paused":
            return AgentState.STOPPED, "paused"
        case "dead":
            return AgentState.FAILED, f"dead: {text(shown, 'State', 'Error')}"
        case status if code := exit_code(shown):
            return AgentState.FAILED, _failure(shown, code, last_words)
        case status:
            return AgentState.STOPPED, status


def _running(shown: Document, restarts: str) -> tuple[AgentState, str]:
    match text(shown, "State", "Health", "Status"):
        case "starting":
            waits = "running; its health check has not passed yet"
            return AgentState.PENDING, f"{waits}; {restarts}" if restarts else waits
        case "unhealthy":
            remarks = [restarts, _unhealthy(shown)]
            return AgentState.RUNNING, "; ".join(each for each in remarks if each)
        case _:
            return AgentState.RUNNING, restarts or "running"


def _unhealthy(shown: Document) -> str:
    log = items(shown, "State", "Health", "Log")
    output = scrubbed(text(log[-1], "Output"), secrets(shown)) if log else ""
    return unhealthy_text(last_line(output))


def _failure(shown: Document, code: int, last_words: LastWords) -> str:
    reason = text(shown, "State", "Error") or last_line(last_words.lines)
    if flag(shown, "State", "OOMKilled"):
        limit = number(shown, "HostConfig", "Memory") // _BYTES_PER_MB
        reason = f"out of memory (limit {limit} MB)" if limit else "out of memory"
    return f"exited with code {code}: {reason}" if reason else f"exited with code {code}"


def last_line(output: str) -> str:
    """The last line that says something, bounded."""
    lines = [line for line in map(str.strip, output.splitlines()) if line]
    return lines[-1][:_REASON_CHARACTERS] if lines else ""


def _metadata(shown: Document, last_words: LastWords) -> Iterator[tuple[str, str]]:
    yield "container.id", text(shown, "Id")[:SHORT_ID]
    yield "container.state", text(shown, "State", "Status")
    yield "container.image", text(shown, "Config", "Image")
    yield "container.health", text(shown, "State", "Health", "Status")
    yield "container.restart_count", str(number(shown, "RestartCount"))
    yield "container.ports", _port_text(bound_ports(shown))
    code = exit_code(shown)
    if code is not None:
        yield "container.exit_code", str(code)
    if instant(shown, "State", "StartedAt"):
        yield "container.started_at", text(shown, "State", "StartedAt")
    if code is not None and instant(shown, "State", "FinishedAt"):
        yield "container.finished_at", text(shown, "State", "FinishedAt")
    yield "container.runtime_error", text(shown, "State", "Error")
    yield "container.stderr", last_words.lines
    yield "container.stderr_error", last_words.error


def _port_text(ports: Iterable[PortMapping]) -> str:
    return ", ".join(f"{each.host_port}->{each.container_port}/{each.protocol}" for each in ports)
