"""`logs --follow` through restarts, moves, and silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import grpc
import pytest

from persys_proto.agent.v1 import agent_pb2 as wire
from persys_proto.control.v1 import control_pb2 as pb
from persysctl.client import Client
from persysctl.errors import CtlError
from persysctl.exit_codes import ExitCode
from persysctl.log_following import LogFollower, Pace
from persysctl.log_resume import RESUMED_LINES
from persysctl.settings import ServerSettings
from tests.unit.ctl.agents import FakeAgent, line, serving, with_web
from tests.unit.ctl.harness import FakeScheduler, Refusal, ask, at, served

pytestmark = pytest.mark.slow

QUICK = Pace(first_pause=0.01, longest_pause=0.02, look=0.05)


class Following:
    """A follower of ``web`` at two agents, n1 and n2, and what it said."""

    def __init__(self, fake: FakeScheduler, first: FakeAgent, second: FakeAgent) -> None:
        self.fake, self.first, self.second = fake, first, second
        self.lines: list[str] = []
        self.notes: list[str] = []
        self.address = ""

    async def run(self, tail: int = 10) -> None:
        """Follow to the end."""

        def show(each: wire.LogLine, node_id: str) -> None:
            self.lines.append(f"{node_id}:{each.text}")

        async with asyncio.timeout(20), Client(ServerSettings(self.address), 5) as client:
            follower = LogFollower(client, "web", show, self.notes.append, QUICK)
            await follower.follow(tail)

    def stands(self, status: str, node_id: str = "n1") -> None:
        """What the scheduler has from now on."""
        view = pb.WorkloadView(workload_id="web", status=status, assigned_node_id=node_id)
        self.fake.workloads["web"] = view


@asynccontextmanager
async def following(*lines: wire.LogLine) -> AsyncIterator[Following]:
    """Two agents; the workload is on the first, with these lines."""
    first, second = FakeAgent(list(lines)), FakeAgent()
    async with AsyncExitStack() as stack:
        fake = with_web(await stack.enter_async_context(serving(first)))
        endpoint = await stack.enter_async_context(serving(second))
        fake.nodes["n2"] = pb.NodeView(node_id="n2", grpc_endpoint=endpoint)
        case = Following(fake, first, second)
        case.address = await stack.enter_async_context(served(fake))
        yield case


def at_call(number: int, do: Callable[[], None]) -> Callable[[object], None]:
    """Calls ``do`` once, at the call of this number."""
    calls: list[object] = []

    def called(what: object) -> None:
        calls.append(what)
        if len(calls) == number:
            do()

    return called


@pytest.mark.parametrize("status", ["Stopped", "Completed", "Deleted", "Failed"])
@pytest.mark.asyncio
async def test_it_ends_when_there_is_no_more_to_come(status: str) -> None:
    """Stopped, completed, deleted and failed for good: the end of the stream is the end."""
    async with following(line("a", 1)) as case:
        case.first.live.put_nowait(line("b", 2))
        case.first.live.put_nowait(None)
        case.fake.on_get = at_call(2, lambda: case.stands(status))
        await case.run()
    assert case.lines == ["n1:a", "n1:b"]
    assert case.notes == ["the output of web on n1 ended", f"web is {status}"]


@pytest.mark.asyncio
async def test_a_deleted_workload_is_the_end() -> None:
    """Also where the scheduler has forgotten it."""
    async with following(line("a", 1)) as case:
        case.first.live.put_nowait(None)
        case.fake.on_get = at_call(2, case.fake.workloads.clear)
        await case.run()
    assert case.notes[-1] == "web was deleted"


@pytest.mark.asyncio
async def test_a_restart_on_the_same_node() -> None:
    """The last lines are asked for again, none is shown twice; a failure with a retry ahead is no
    end."""
    async with following(line("a", 1), line("b", 2)) as case:
        case.first.live.put_nowait(None)

        def restart() -> None:
            case.first.lines.append(line("c", 3))
            case.first.live.put_nowait(None)
            case.fake.on_get = at_call(1, lambda: case.stands("Stopped"))

        retried = pb.WorkloadView(
            workload_id="web", status="Failed", assigned_node_id="n1", retry_next_at=at(5)
        )
        case.fake.on_get = at_call(2, lambda: case.fake.workloads.update(web=retried))
        case.first.on_logs = at_call(2, restart)
        await case.run(tail=1)
    assert case.lines == ["n1:b", "n1:c"]
    assert [each.tail for each in case.first.asked] == [1, RESUMED_LINES]


@pytest.mark.asyncio
async def test_a_move() -> None:
    """The output goes on at the other node, from its beginning; in between, it is waited for."""
    async with following(line("a", 100)) as case:
        case.second.lines.append(line("b", 1))
        case.first.live.put_nowait(None)
        case.second.live.put_nowait(None)

        def move() -> None:
            case.stands("Pending", "")
            case.fake.on_get = at_call(3, arrive)

        def arrive() -> None:
            case.stands("Running", "n2")
            case.fake.on_get = at_call(1, lambda: case.stands("Stopped", "n2"))

        case.fake.on_get = at_call(2, move)
        await case.run()
    assert case.lines == ["n1:a", "n2:b"]
    assert case.notes == [
        "the output of web on n1 ended",
        "web is on no node; waiting (Pending)",
        "web is on n2 now",
        "the output of web on n2 ended",
        "web is Stopped",
    ]


@pytest.mark.asyncio
async def test_a_machine_that_died_without_a_word() -> None:
    """A stream that is open and silent is left once the scheduler has moved the workload."""
    async with following(line("a", 1)) as case:
        case.second.live.put_nowait(None)
        case.fake.on_get = at_call(3, lambda: case.stands("Running", "n2"))
        case.second.on_logs = lambda _: case.stands("Stopped", "n2")
        await case.run()
    assert case.notes[:2] == ["web is no longer on n1", "web is on n2 now"]


@pytest.mark.asyncio
async def test_a_lost_agent_and_a_lost_scheduler_are_waited_for() -> None:
    """What was reached once may go away; each trouble is told once, however long it lasts."""
    async with following(line("a", 1)) as case:
        case.first.live.put_nowait(Refusal(grpc.StatusCode.UNAVAILABLE, "stopping"))

        def go_away() -> None:
            case.fake.refusals["GetWorkload"] = Refusal(grpc.StatusCode.UNAVAILABLE, "elsewhere")
            case.fake.on_get = at_call(4, come_back)

        def come_back() -> None:
            case.fake.refusals.clear()
            case.stands("Stopped")

        case.fake.on_get = at_call(2, go_away)
        await case.run()
    assert case.notes == [
        "the agent of node n1 broke the call off: stopping",
        "the scheduler cannot do this now: elsewhere; trying again",
        "web is Stopped",
    ]


@pytest.mark.asyncio
async def test_an_agent_that_has_it_no_more() -> None:
    """While a workload is replaced its agent may not have it for a moment."""
    async with following(line("a", 1)) as case:
        case.first.live.put_nowait(None)
        absent = Refusal(grpc.StatusCode.NOT_FOUND, "no web")

        def refuse(_: wire.StreamLogsRequest) -> None:
            case.first.refusal = absent if len(case.first.asked) in (2, 3) else None
            if len(case.first.asked) == 4:
                case.first.lines.append(line("b", 2))
                case.first.live.put_nowait(None)
                case.stands("Stopped")

        case.first.on_logs = refuse
        await case.run()
    assert case.lines == ["n1:a", "n1:b"]
    assert case.notes[1] == "the agent of node n1 does not have this workload: no web"


@pytest.mark.parametrize("who", ["agent", "scheduler"])
@pytest.mark.asyncio
async def test_a_no_for_good_ends_it(who: str) -> None:
    """Whoever forbids it later on is not asked for ever."""
    async with following(line("a", 1)) as case:
        case.first.live.put_nowait(None)
        refusal = Refusal(grpc.StatusCode.PERMISSION_DENIED, "go")

        def forbid() -> None:
            if who == "agent":
                case.first.refusal = refusal
            else:
                case.fake.refusals["GetWorkload"] = refusal

        case.fake.on_get = at_call(2, forbid)
        with pytest.raises(CtlError, match="allow"):
            await case.run()
    assert case.lines == ["n1:a"]


@pytest.mark.asyncio
async def test_the_command_follows_and_notes_stay_apart() -> None:
    """`logs -f` prints lines on standard output, what it has to say on standard error, and ends
    with 0."""
    agent = FakeAgent([line("a", 1)])
    agent.live.put_nowait(None)
    async with serving(agent) as endpoint:
        fake = with_web(endpoint, "Completed")
        result = await ask(fake, "logs", "web", "-f", "--tail", "3")
    assert (result.code, result.out) == (ExitCode.DONE, "a\n")
    assert result.err == "the output of web on n1 ended\nweb is Completed\n"
    assert agent.asked == [wire.StreamLogsRequest(id="web", tail=3, follow=True)]
