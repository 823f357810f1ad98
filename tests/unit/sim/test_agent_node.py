from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from attrs import evolve

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.errors import FrozenError
from persys_core.sim.agent_cluster import SimulatedMachines
from persys_core.sim.agent_settings import AgentSettings, existing_agent, our_agent
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time

LEASE = timedelta(seconds=30)


class Scheduler:
    """The other end: notes what comes in and answers as told."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.accepts = self.knows = self.is_up = True
        self.registered: list[datetime] = []
        self.beats: list[Heartbeat] = []
        self.renews = True
        self.drain = False

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        if not self.is_up:
            raise FrozenError("away")
        now = self.clock.now()
        self.registered.append(now)
        return RegisterAnswer(self.accepts, "no room", timedelta(seconds=10), now + LEASE)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        if not self.is_up:
            raise FrozenError("away")
        now = self.clock.now()
        self.beats.append(beat)
        lease = now + LEASE if self.renews else now - LEASE
        return HeartbeatAnswer(True, self.drain, lease, known=self.knows)


def machines(
    clock: VirtualClock, scheduler: Scheduler, settings: AgentSettings
) -> SimulatedMachines:
    made = SimulatedMachines(clock, seed=1)
    made.add(settings)
    made.connect(settings.node_id, scheduler.register, scheduler.heartbeat)
    return made


@virtual_time()
async def test_a_node_registers_once_and_beats_every_interval(clock: VirtualClock) -> None:
    """In ten quiet minutes: one registration, and a beat every ten seconds."""
    scheduler = Scheduler(clock)
    machines(clock, scheduler, our_agent("n1"))
    await clock.sleep(timedelta(minutes=10))
    assert len(scheduler.registered) == 1
    assert 59 <= len(scheduler.beats) <= 61
    assert [beat.sequence for beat in scheduler.beats] == list(range(1, len(scheduler.beats) + 1))


@virtual_time()
async def test_a_refused_registration_backs_off_to_thirty_seconds(clock: VirtualClock) -> None:
    """The waits are 1, 2, 4, 8, 16, 30, 30 … seconds."""
    scheduler = Scheduler(clock)
    scheduler.accepts = False
    machines(clock, scheduler, existing_agent("n1"))
    await clock.sleep(timedelta(minutes=2))
    times = scheduler.registered
    gaps = [round((later - earlier).total_seconds()) for earlier, later in pairwise(times)]
    assert gaps[:7] == [1, 2, 4, 8, 16, 30, 30]


@virtual_time()
async def test_an_existing_agent_registers_in_a_hot_loop(clock: VirtualClock) -> None:
    """Where heartbeats fail it registers again at once, slowed by its sampling only."""
    scheduler = Scheduler(clock)
    scheduler.knows = False
    machines(clock, scheduler, existing_agent("n1"))
    await clock.sleep(timedelta(minutes=1))
    assert 50 <= len(scheduler.registered) <= 60


@virtual_time()
async def test_our_agent_backs_off_where_heartbeats_fail(clock: VirtualClock) -> None:
    """Ours waits longer each time until a beat is answered."""
    scheduler = Scheduler(clock)
    scheduler.knows = False
    machines(clock, scheduler, our_agent("n1"))
    await clock.sleep(timedelta(minutes=1))
    assert len(scheduler.registered) <= 8


@virtual_time()
async def test_a_lease_that_is_not_renewed_leads_to_a_new_registration(
    clock: VirtualClock,
) -> None:
    """The lease in the answer to a beat is taken at its word."""
    scheduler = Scheduler(clock)
    scheduler.renews = False
    machines(clock, scheduler, existing_agent("n1"))
    await clock.sleep(timedelta(minutes=1))
    assert len(scheduler.registered) > 3


@virtual_time()
async def test_a_scheduler_that_was_away_is_found_again(clock: VirtualClock) -> None:
    """Whatever happened meanwhile, the node is back within its longest backoff."""
    scheduler = Scheduler(clock)
    fleet = machines(clock, scheduler, our_agent("n1"))
    await clock.sleep(timedelta(minutes=1))
    scheduler.is_up = False
    await clock.sleep(timedelta(minutes=30))
    scheduler.is_up = True
    before = len(scheduler.beats)
    await clock.sleep(timedelta(minutes=1))
    assert len(scheduler.beats) > before
    await fleet.stop()


@virtual_time()
async def test_a_killed_node_is_silent_until_it_is_revived(clock: VirtualClock) -> None:
    """No beat comes from a dead machine; a revived one registers with a new boot id."""
    scheduler = Scheduler(clock)
    fleet = machines(clock, scheduler, our_agent("n1"))
    await clock.sleep(timedelta(minutes=1))
    fleet.kill("n1")
    count = len(scheduler.beats)
    await clock.sleep(timedelta(minutes=10))
    assert len(scheduler.beats) == count
    fleet.revive("n1")
    await clock.sleep(timedelta(minutes=1))
    assert len(scheduler.registered) == 2
    assert len({beat.boot_id for beat in scheduler.beats}) == 2


@virtual_time()
async def test_a_paused_node_is_silent_and_goes_on(clock: VirtualClock) -> None:
    """A stopped process sends nothing, and the same boot goes on afterwards."""
    scheduler = Scheduler(clock)
    fleet = machines(clock, scheduler, our_agent("n1"))
    await clock.sleep(timedelta(seconds=55))
    fleet.pause("n1")
    count = len(scheduler.beats)
    await clock.sleep(timedelta(minutes=10))
    assert len(scheduler.beats) == count
    fleet.resume("n1")
    await clock.sleep(timedelta(minutes=1))
    assert len(scheduler.beats) > count
    assert len({beat.boot_id for beat in scheduler.beats}) == 1


@virtual_time()
async def test_a_wish_to_drain_is_only_noted(clock: VirtualClock) -> None:
    """The node goes on as before (decisions §2.8)."""
    scheduler = Scheduler(clock)
    scheduler.drain = True
    fleet = SimulatedMachines(clock)
    fleet.add(evolve(existing_agent("n1"), endpoint="10.0.0.1:7"))
    node = fleet.connect("n1", scheduler.register, scheduler.heartbeat)
    await clock.sleep(timedelta(minutes=1))
    assert node.drain_requested
    assert len(scheduler.registered) == 1
    assert node.problem == ""
