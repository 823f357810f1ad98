"""What runs and is not well: its remark is kept and shown, and costs few writes."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from attrs import evolve

from persys_core.control.listed_remarks import ListedRemarks
from persys_core.control.listing import Listing
from persys_core.control.requests import Heartbeat
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.remarks import (
    Remark,
    is_worth_a_write,
    remark_of,
    restarts_text,
    unhealthy_text,
)
from persys_core.model.spec import ContainerSpec
from persys_core.model.states import RestartPolicy
from persys_core.sim.agent import AgentModel
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import START, Driver, container, machine, running_cluster

QUIET = evolve(machine("n1"), reconcile_interval=timedelta(days=1))
"""An agent that does nothing by itself."""
SICK = unhealthy_text("connection refused")


def _remark(driver: Driver, text: str) -> None:
    (model,) = driver.cluster.machines
    model.remark_below("w", text, driver.clock.now())


async def _reason(driver: Driver) -> tuple[str, str]:
    reason = (await driver.view("w")).status.reason
    return (reason.code, reason.message) if reason else ("", "")


async def _revision(driver: Driver) -> int:
    _, fresh = await driver.cluster.api().queries.get_workload("w")
    return fresh.revision


@pytest.mark.slow
@virtual_time()
async def test_an_unhealthy_workload_runs_and_says_why(clock: VirtualClock) -> None:
    """It is Running, with its remark as the reason until it is well again; its agent is not
    called, and nothing is counted against it."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container())
        await driver.wait(minutes=2)
        assert await _reason(driver) == ("", "")
        applies = driver.calls("apply")
        _remark(driver, SICK)
        await driver.wait(seconds=30)
        assert await driver.status("w") == "Running"
        assert await _reason(driver) == ("unhealthy", "unhealthy: connection refused")
        _remark(driver, "")
        await driver.wait(seconds=90)
        assert await _reason(driver) == ("", "")
        assert driver.calls("apply") == applies
        assert (await driver.view("w")).status.retry.attempts == 0


@pytest.mark.slow
@virtual_time()
async def test_what_is_remarked_all_the_time_costs_few_writes(clock: VirtualClock) -> None:
    """Counts that grow are written every five minutes at most, and what stays the same never."""
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container())
        await driver.wait(minutes=2)
        before = await _revision(driver)
        for number in range(1, 61):
            _remark(driver, restarts_text(number, 1, ""))
            await driver.wait(seconds=10)
        assert 2 <= await _revision(driver) - before <= 3
        await driver.wait(minutes=6)
        steady = await _revision(driver)
        assert await _reason(driver) == ("restarting", restarts_text(60, 1, ""))
        await driver.wait(minutes=30)
        assert await _revision(driver) == steady


@pytest.mark.parametrize("said", ["", "running", "Up 3 minutes"])
@virtual_time()
async def test_beats_that_carry_no_remarks_take_none_away(
    clock: VirtualClock, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lists remark stands until they stop, and then goes; nothing is written meanwhile."""
    told = AgentModel.heartbeat

    def beat(model: AgentModel, now: datetime) -> Heartbeat:
        found = told(model, now)
        return evolve(found, reports=tuple(evolve(each, message=said) for each in found.reports))

    monkeypatch.setattr(AgentModel, "heartbeat", beat)
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", container())
        await driver.wait(minutes=2)
        _remark(driver, SICK)
        await driver.wait(minutes=2)
        before = await _revision(driver)
        for _ in range(60):
            await driver.wait(seconds=10)
            assert await _reason(driver) == ("unhealthy", SICK)
        assert await _revision(driver) == before
        _remark(driver, "")
        await driver.wait(seconds=90)
        assert await _reason(driver) == ("", "")


def test_what_was_listed_long_ago_is_no_remark_any_more() -> None:
    """Where no lists come, or their state is over, heartbeats alone say how it is."""
    remarks = ListedRemarks()
    beat = AgentReport("w", AgentState.RUNNING)
    remarks.listed("n1", [evolve(beat, message=SICK)], START)
    minute = timedelta(minutes=1)
    assert remarks.completed("n1", beat, START + minute).message == SICK
    assert remarks.completed("n1", beat, START + 6 * minute) == beat
    assert remarks.completed("n2", beat, START + minute) == beat
    other = evolve(beat, message=restarts_text(2, 1, ""))
    assert remarks.completed("n1", other, START + minute) == other
    stopped = evolve(beat, state=AgentState.STOPPED)
    assert remarks.completed("n1", stopped, START + minute) == stopped
    remarks.listed("n1", [beat], START + minute)
    assert remarks.completed("n1", beat, START + minute) == beat


@pytest.mark.parametrize("text", [unhealthy_text("x" * 1500), unhealthy_text("token=hunter22")])
@virtual_time()
async def test_what_is_stored_shorter_or_masked_is_as_recorded(
    clock: VirtualClock, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remark that is cut, or from which a secret is taken, nudges nobody again."""
    spec = evolve(container(), body=ContainerSpec("i", env={"TOKEN": "hunter22"}))
    async with running_cluster(clock, machine("n1")) as driver:
        await driver.apply("w", spec)
        await driver.wait(minutes=2)
        _remark(driver, text)
        await driver.wait(minutes=7)
        reason = (await _reason(driver))[1]
        assert reason.startswith("unhealthy: ")
        assert "hunter22" not in reason
        unsettled = 0
        take = Listing._take_report

        def counted(listing: Listing, *args: Any) -> bool:
            nonlocal unsettled
            found = take(listing, *args)
            unsettled += found
            return found

        monkeypatch.setattr(Listing, "_take_report", counted)
        await driver.wait(minutes=10)
        assert unsettled == 0


@pytest.mark.slow
@virtual_time()
async def test_a_loop_that_is_hardly_ever_seen_running_is_told(clock: VirtualClock) -> None:
    """A container that crashes at once is mostly seen between two starts: its record stays
    Running, and says how often it was started again."""
    plan = FaultPlan(workloads={"w": Behaviour(exit_after=timedelta(seconds=4), exit_code=1)})
    async with running_cluster(clock, QUIET, plan=plan) as driver:
        await driver.apply("w", container(restart=RestartPolicy.ALWAYS))
        await driver.wait(minutes=5)
        _remark(driver, restarts_text(7, 1, "no such table"))
        await driver.wait(minutes=2)
        assert await driver.status("w") == "Running"
        text = "restarted 7 times in 10 min, last exit 1: no such table"
        assert await _reason(driver) == ("restarting", text)
        steady = await _revision(driver)
        await driver.wait(minutes=30)
        assert await _revision(driver) == steady


@pytest.mark.slow
@virtual_time()
async def test_what_never_comes_up_fails_with_what_was_remarked(clock: VirtualClock) -> None:
    """One that is started again and again and never seen running fails with more than a time."""
    never_up = Behaviour(exit_after=timedelta(milliseconds=1), exit_code=1)
    plan = FaultPlan(workloads={"w": never_up})
    async with running_cluster(clock, QUIET, plan=plan) as driver:
        await driver.apply("w", container(restart=RestartPolicy.ALWAYS))
        await driver.wait(seconds=5)
        _remark(driver, restarts_text(7, 1, "no such table"))
        while await driver.status("w") != "RetryPending":
            await driver.wait(seconds=1)
        failure = (await driver.view("w")).status.failure
        assert failure is not None
        assert "after it was sent: restarted 7 times in 10 min, last exit 1" in failure.message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("running", Remark.NONE),
        ("3/3 containers running", Remark.NONE),
        ("running (reason=booted)", Remark.NONE),
        ("restarting", Remark.NONE),
        ("recovered from prolonged pending via restart", Remark.NONE),
        (restarts_text(1, None, ""), Remark.RESTARTING),
        (restarts_text(12, 137, "killed"), Remark.RESTARTING),
        (unhealthy_text(""), Remark.UNHEALTHY),
        ("running, unhealthy: curl failed", Remark.UNHEALTHY),
        ("2/2 containers running; unhealthy: db", Remark.UNHEALTHY),
        ("Up 3 minutes (unhealthy)", Remark.UNHEALTHY),
        ("running, health=unhealthy", Remark.UNHEALTHY),
        ("not unhealthy", Remark.NONE),
        ("running: not unhealthy", Remark.NONE),
        ("0 of 3 checks unhealthy", Remark.NONE),
        ("running, 0 unhealthy", Remark.NONE),
        ("GET /unhealthy 404", Remark.NONE),
        ("running: unhealthy-probe passed", Remark.NONE),
    ],
)
def test_remarks_are_known_again(message: str, expected: Remark) -> None:
    """Only what says that something is amiss is a remark, whoever wrote it."""
    assert remark_of(message) is expected


@pytest.mark.parametrize(
    ("recorded", "message", "seconds", "expected"),
    [
        ("running", "running", 3600, False),
        ("", "running", 3600, False),
        ("2/2 containers running", "1/1 containers running", 3600, False),
        ("running", SICK, 0, True),
        (SICK, "running", 59, False),
        (SICK, "running", 60, True),
        (SICK, unhealthy_text("timed out"), 299, False),
        (SICK, unhealthy_text("timed out"), 300, True),
        (SICK, restarts_text(2, 1, ""), 60, True),
    ],
)
def test_when_a_remark_is_written(
    recorded: str, message: str, seconds: int, expected: bool
) -> None:
    """The first remark at once, other news a minute later, other words later still, and a steady
    workload never."""
    now: datetime = START + timedelta(seconds=seconds)
    assert is_worth_a_write(recorded, START, message, now) is expected
    assert not is_worth_a_write(recorded, None, recorded, now)


def test_how_restarts_are_told() -> None:
    """As often as it was, with what is known of the last end."""
    assert restarts_text(0, 1, "x") == ""
    assert restarts_text(1, None, "") == "restarted once in 10 min"
    assert restarts_text(7, 1, "") == "restarted 7 times in 10 min, last exit 1"
