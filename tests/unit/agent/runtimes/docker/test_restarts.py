"""How often a container was started again lately, from what the Engine shows of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from persys_agent.runtimes.docker.restarts import RestartWatch
from persys_agent.runtimes.docker.states import LastWords, instance
from persys_core.model.observation import AgentState

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Bench:
    """One container of which the Engine shows what is set here."""

    def __init__(self, made: timedelta = timedelta()) -> None:
        self.now = START
        self.made_at, self.began_at = START - made, START - made
        self.asked: list[datetime] = []
        self.known_exit: int | None = None
        self.known_words = ""
        self.watch = RestartWatch(self._last_exit, self._words_before, lambda: self.now)

    async def _last_exit(
        self, container: str, ended_at: datetime, started_at: datetime
    ) -> int | None:
        assert ended_at <= started_at
        assert container == "c1"
        self.asked.append(ended_at)
        return self.known_exit

    async def _words_before(self, container: str, before: datetime) -> LastWords:
        assert (container, before) == ("c1", self.began_at)
        return LastWords(self.known_words)

    def shown(
        self, count: int, status: str = "running", code: int = 0, **state: object
    ) -> dict[str, object]:
        return {
            "Id": "c1",
            "Created": self.made_at.isoformat(),
            "RestartCount": count,
            "Config": {"Env": ["TOKEN=hush-hush"]},
            "State": {
                "Status": status,
                "ExitCode": code,
                "StartedAt": self.began_at.isoformat(),
                "FinishedAt": self.began_at.isoformat(),
                **state,
            },
        }

    async def look(self, count: int, status: str = "running", code: int = 0, said: str = "") -> str:
        return await self.watch.remark(self.shown(count, status, code), LastWords(said))


@pytest.mark.asyncio
async def test_a_container_that_is_well_is_not_remarked() -> None:
    """No restart, no remark, and the Engine is asked nothing else."""
    bench = Bench()
    assert [await bench.look(0) for _ in range(3)] == ["", "", ""]
    assert bench.asked == []


@pytest.mark.asyncio
async def test_restarts_are_counted_while_they_are_recent() -> None:
    """Each counts for ten minutes; what was last said of the end stands as long."""
    bench = Bench()
    await bench.look(0)
    assert await bench.look(2, "restarting", 3, "a\nno such table\n") == (
        "restarted 2 times in 10 min, last exit 3: no such table"
    )
    bench.now += timedelta(minutes=6)
    said = "restarted 5 times in 10 min, last exit 3: no such table"
    assert await bench.look(5, "restarting", 3) == said
    assert await bench.look(5) == said, "it says the same whether it runs just now"
    bench.now += timedelta(minutes=4)
    assert (await bench.look(5)).startswith("restarted 3 times")
    bench.now += timedelta(minutes=6)
    assert await bench.look(5) == ""


@pytest.mark.asyncio
async def test_the_code_of_an_end_that_nobody_saw_is_asked_for() -> None:
    """A container that runs again shows no code: the Engine is asked for it, and for what was
    written before, once where it knows. What it does not know after three looks is left out."""
    bench = Bench()
    await bench.look(0)
    bench.known_exit, bench.known_words = 137, "begins\nloads hush-hush\n"
    assert await bench.look(1) == "restarted once in 10 min, last exit 137: loads ***"
    await bench.look(1)
    assert bench.asked == [bench.began_at]
    bench.known_exit, bench.known_words = None, "again"
    looks = [await bench.look(2) for _ in range(4)]
    assert looks == [
        *["restarted 2 times in 10 min, last exit 137: again"] * 2,
        *["restarted 2 times in 10 min: again"] * 2,
    ]
    assert len(bench.asked) == 4


@pytest.mark.asyncio
async def test_the_first_remark_is_no_half_one() -> None:
    """The Engine counts a restart before it notes how the run ended, and what is told first stands
    for minutes: so it waits for the next look."""
    bench = Bench()
    await bench.look(0)
    assert await bench.look(1) == ""
    bench.known_exit, bench.known_words = 3, "no such table"
    assert await bench.look(1) == "restarted once in 10 min, last exit 3: no such table"


@pytest.mark.asyncio
async def test_a_start_by_hand_begins_a_new_count() -> None:
    """The Engine counts from 0 again; what was before stays counted for its time."""
    bench = Bench()
    await bench.look(0)
    await bench.look(4, "restarting", 1)
    await bench.look(0)
    assert (await bench.look(1, "restarting", 1)).startswith("restarted 5 times")


@pytest.mark.parametrize(
    ("made_minutes", "began_minutes", "expected"),
    [(5, 1, "restarted 6 times"), (60, 1, "restarted once"), (60, 30, "")],
)
@pytest.mark.asyncio
async def test_at_first_sight_only_what_is_known_counts(
    made_minutes: int, began_minutes: int, expected: str
) -> None:
    """An agent that was started anew tells no restarts of long ago as those of now."""
    bench = Bench(made=timedelta(minutes=made_minutes))
    bench.began_at = START - timedelta(minutes=began_minutes)
    told = [await bench.look(6) for _ in range(3)][-1]
    assert told.partition(" in ")[0] == expected


@pytest.mark.asyncio
async def test_no_secret_is_remarked() -> None:
    """What was given as a secret is masked before anything is cut or told."""
    bench = Bench()
    await bench.look(0)
    said = await bench.look(1, "restarting", 1, "bad token hush-hush")
    assert said == "restarted once in 10 min, last exit 1: bad token ***"


def test_the_remark_is_the_message_in_every_state() -> None:
    """So that what flips between running and starting says the same all the time."""
    bench, said = Bench(), "restarted 3 times in 10 min, last exit 1"
    sick = {"Health": {"Status": "unhealthy", "Log": [{"Output": "no\n"}]}}
    starting = {"Health": {"Status": "starting"}}
    found = [
        instance("w", shown, LastWords(), said)
        for shown in (
            bench.shown(3),
            bench.shown(3, "restarting", 1),
            bench.shown(3, "running", 0, **sick),
            bench.shown(3, "running", 0, **starting),
        )
    ]
    assert [(each.state, each.message) for each in found] == [
        (AgentState.RUNNING, said),
        (AgentState.PENDING, said),
        (AgentState.RUNNING, f"{said}; unhealthy: no"),
        (AgentState.PENDING, f"running; its health check has not passed yet; {said}"),
    ]
