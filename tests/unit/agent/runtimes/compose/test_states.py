"""The state of an application is that of its services together."""

from __future__ import annotations

import pytest
from attrs import evolve

from persys_agent.runtimes.compose.states import ServiceContainer, application_instance, is_up
from persys_agent.runtimes.port import Instance
from persys_core.model.observation import AgentState
from persys_core.model.spec import PortMapping

RUNNING = Instance("w", "r", "h", AgentState.RUNNING, "running")
CREATED = Instance("w", "r", "h", AgentState.STOPPED, "created")
DONE = Instance("w", "r", "h", AgentState.STOPPED, "exited", exit_code=0)
WHY = {"container.stderr": "why"}
BAD = Instance("w", "r", "h", AgentState.FAILED, "exited with code 3: why", 3, metadata=WHY)
WAITING = Instance("w", "r", "h", AgentState.PENDING, "restarting", exit_code=1)
SICK = evolve(RUNNING, message="unhealthy: no", metadata={"container.health": "unhealthy"})
AGAIN = evolve(RUNNING, message="restarted 3 times in 10 min, last exit 1")
LOOP = evolve(WAITING, message=AGAIN.message)


def whole(*alone: Instance) -> Instance:
    return application_instance("w", "p", services(*alone))


def services(*alone: Instance) -> list[ServiceContainer]:
    return [ServiceContainer(f"s{number}", each) for number, each in enumerate(alone)]


@pytest.mark.parametrize(
    ("alone", "state", "message", "code"),
    [
        ([RUNNING, RUNNING], AgentState.RUNNING, "2/2 containers running", None),
        ([RUNNING, DONE], AgentState.RUNNING, "1/1 containers running, 1 done", None),
        ([RUNNING, CREATED], AgentState.PENDING, "1/2 containers running", None),
        ([RUNNING, WAITING], AgentState.PENDING, "1/2 containers running", None),
        ([WAITING], AgentState.PENDING, "0/1 containers running", None),
        ([CREATED, CREATED], AgentState.STOPPED, "0/2 containers running", None),
        ([CREATED, DONE], AgentState.STOPPED, "0/1 containers running", None),
        ([DONE, DONE], AgentState.STOPPED, "0/2 containers running", 0),
        ([RUNNING, BAD], AgentState.FAILED, "service s1: exited with code 3: why", 3),
        ([RUNNING, SICK], AgentState.RUNNING, "2/2 containers running; unhealthy: s1", None),
        (
            [RUNNING, AGAIN],
            AgentState.RUNNING,
            "2/2 containers running; s1 restarted 3 times in 10 min, last exit 1",
            None,
        ),
        (
            [SICK, LOOP],
            AgentState.PENDING,
            "1/2 containers running; s1 restarted 3 times in 10 min, last exit 1; unhealthy: s0",
            None,
        ),
    ],
)
def test_states(alone: list[Instance], state: AgentState, message: str, code: int | None) -> None:
    """What ended well is done, what ended otherwise fails it all, and what waits holds it up."""
    found = whole(*alone)
    assert (found.state, found.message, found.exit_code) == (state, message, code)
    assert is_up(services(*alone)) == (state is AgentState.RUNNING)
    assert found.metadata.get("container.exit_code") == (None if code is None else str(code))


def test_a_half_made_update_has_no_revision() -> None:
    """Containers of several revisions are of none, so that the next order mends them."""
    assert whole(RUNNING, RUNNING).revision_id == "r"
    mixed = whole(RUNNING, evolve(RUNNING, revision_id="q"))
    assert (mixed.revision_id, mixed.spec_hash) == ("", "h")


def test_details_are_of_all() -> None:
    """Ports and restarts are of all services, last words of the one that failed."""
    web = evolve(RUNNING, ports=(PortMapping(8080, 80),), restarts=2)
    found = whole(evolve(web, metadata={"container.ports": "8080->80/tcp"}), BAD)
    assert found.ports == (PortMapping(8080, 80),)
    assert found.restarts == 2
    assert found.metadata["container.ports"] == "8080->80/tcp"
    assert found.metadata["container.stderr"] == "why"
    assert found.metadata["compose.project"] == "p"
