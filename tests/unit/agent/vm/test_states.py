"""libvirt's states in the words of agents."""

import pytest

from persys_agent.runtimes.vm.states import domain_state, is_active
from persys_core.model.observation import AgentState

P, R, S, F, U = (
    AgentState.PENDING, AgentState.RUNNING, AgentState.STOPPED, AgentState.FAILED,
    AgentState.UNKNOWN,
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "reason", "state", "message"),
    [
        (0, 0, P, "nostate (reason=unknown)"),
        (1, 1, R, "running (reason=booted)"),
        (2, 0, P, "blocked (reason=unknown)"),
        (3, 5, P, "paused (runtime frozen, reason=ioerror)"),
        (4, 1, S, "shutdown (reason=user)"),
        (5, 0, S, "shutdown (reason=unknown)"),
        (5, 1, S, "shutdown (reason=shutdown)"),
        (5, 2, S, "shutdown (reason=destroyed)"),
        (5, 3, F, "crashed (reason=crashed)"),
        (5, 6, F, "crashed (reason=failed)"),
        (6, 1, F, "crashed (reason=panicked)"),
        (7, 0, U, "pmsuspended (reason=unknown)"),
        (99, 99, U, "unknown (reason=unknown)"),
    ],
)
def test_every_state_has_a_report(code: int, reason: int, state: AgentState, message: str) -> None:
    """States and texts are those of the reference; a guest that crashed has failed."""
    found = domain_state(code, reason)
    assert (found.state, found.message) == (state, message)
    assert found.metadata["vm.domain_state_code"] == str(code)
    assert found.metadata["vm.domain_reason_code"] == str(reason)


def test_activity_is_a_process() -> None:
    """All but a domain that is off has one."""
    assert [code for code in range(8) if not is_active(code)] == [0, 5]
