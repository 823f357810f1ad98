from __future__ import annotations

from attrs import evolve

from persys_core.model.observation import AgentState
from persys_core.model.states import DesiredState
from persys_core.sim.agent_failures import classify_like_agents
from persys_core.sim.agent_journal import Happening
from persys_core.sim.agent_settings import Latency, existing_agent
from tests.unit.sim.support import Machine


def test_a_finished_job_is_started_again_on_every_pass() -> None:
    """Exit code 0 counts as stopped, so the local loop restarts it for ever (decisions §2.11)."""
    machine = Machine()
    machine.apply(image="job")
    machine.wait(600)
    assert machine.state() in (AgentState.RUNNING, AgentState.STOPPED)
    starts = list(machine.model.journal.of("w1", Happening.STARTED))
    assert 8 <= len(starts) <= 21


def test_a_job_that_is_told_to_stop_stays_stopped() -> None:
    """With desired Stopped the loop leaves it alone."""
    machine = Machine()
    machine.apply(image="job")
    machine.wait(5)
    machine.apply(image="job", desired=DesiredState.STOPPED)
    machine.wait(60)
    count = machine.model.journal.counts[Happening.STARTED]
    machine.wait(600)
    assert machine.state() is AgentState.STOPPED
    assert machine.model.journal.counts[Happening.STARTED] == count


def test_a_crashed_container_is_never_started_locally() -> None:
    """The retry tracker notes three attempts without making one, then gives up."""
    machine = Machine()
    machine.apply(image="crash")
    machine.wait(600)
    report = machine.status()
    assert report is not None
    assert report.state is AgentState.FAILED
    assert report.metadata["retry_terminal"] == "true"
    assert report.metadata["retry_attempts"] == "3"
    assert machine.model.journal.counts[Happening.STARTED] == 1


def test_another_apply_of_the_same_revision_starts_a_crashed_container() -> None:
    """The container is used again and the notes of the failure are gone."""
    machine = Machine()
    machine.apply(image="crash")
    machine.wait(600)
    machine.apply(image="crash")
    machine.wait(4)
    report = machine.status()
    assert report is not None
    assert report.state is AgentState.RUNNING
    assert "retry_terminal" not in report.metadata
    assert machine.model.journal.counts[Happening.CREATED] == 1
    assert machine.model.journal.counts[Happening.STARTED] == 2


def test_what_the_runtime_lost_is_created_again() -> None:
    """A missing object is made anew without end and without backoff."""
    machine = Machine()
    machine.apply(image="missing")
    machine.wait(300)
    report = machine.status()
    assert report is not None
    assert report.metadata["failure_reason"] == "RUNTIME_RESOURCE_MISSING"
    assert "image not found" in report.metadata["last_error"]


def test_a_running_workload_that_should_be_stopped_is_stopped() -> None:
    """After a start that raced with a stop the local loop mends it."""
    machine = Machine(evolve(existing_agent("n1"), stop=Latency.of(1)))
    machine.apply()
    machine.wait(5)
    machine.apply(desired=DesiredState.STOPPED)
    machine.wait(60)
    assert machine.model.running(machine.now) == {}
    assert machine.state() is AgentState.STOPPED


def test_a_start_that_fails_is_noted_with_its_class() -> None:
    """A start failure that cannot be retried ends the local tries."""
    machine = Machine()
    machine.apply(image="nostart")
    machine.wait(300)
    report = machine.status()
    assert report is not None
    assert report.metadata["last_error"] == "device or resource busy"
    assert report.metadata["failure_reason"] == "UNKNOWN_ERROR"


def test_failure_classes_are_those_of_the_agents() -> None:
    """The first row with a keyword wins, over-broad as it is."""
    table = {
        "manifest unknown: image not found": "INVALID_IMAGE",
        "pull: read timed out": "IMAGE_PULL_TIMEOUT",
        "pull access: unauthorized": "IMAGE_PULL_AUTH_FAILED",
        "address already in use": "PORT_BIND_CONFLICT",
        "host is down": "NETWORK_UNREACHABLE",
        "network: i/o timeout": "NETWORK_TIMEOUT",
        "dns server failed": "DNS_RESOLUTION_FAILED",
        "quota used up": "INSUFFICIENT_RESOURCES",
        "schema broken": "INVALID_SPECIFICATION",
        "exited with code 1": "UNKNOWN_ERROR",
    }
    assert {text: classify_like_agents(text) for text in table} == table
