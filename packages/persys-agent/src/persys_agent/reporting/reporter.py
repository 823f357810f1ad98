"""``Reporter``: keeps the scheduler told of this node: registration, then heartbeats.

Decided here: what follows a failure. Whatever fails, the next call waits, longer each time and
never in step with other nodes (agent defects 20 and 21); a beat that was acknowledged makes the
wait short again. No wait is longer than a lease of the scheduler's lasts (three intervals), so that
a node is not lost after an outage that is over. A node that can do something else than it said
registers again. One whose id another agent holds goes on trying and says so: the other may end.
``drain_node`` is obeyed as long as the last answer says so.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Protocol, TypeVar

import structlog
from attrs import frozen

from persys_agent.engine.fence import LeaseFence
from persys_agent.reporting.membership import Membership
from persys_agent.wire.gate import Gate
from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.errors import PersysError
from persys_core.ports.clock import Clock

__all__ = ["Presence", "Reporter", "SchedulerCalls"]

A = TypeVar("A")
_DEFAULT_INTERVAL = timedelta(seconds=10)
_FIRST_BACKOFF = timedelta(seconds=1)
_LONGEST_BACKOFF = timedelta(seconds=30)
_LEASE_INTERVALS = 3
_LONGEST_IN_INTERVALS = 1.5
_COLLECTING_IN_INTERVALS = 1.5
"""With the interval itself less than a lease: a runtime that hangs does not make a node silent."""
_CALL_DEADLINE = timedelta(seconds=15)


class SchedulerCalls(Protocol):
    """The scheduler; both may raise ``PersysError``."""

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        """RegisterNode."""
        ...

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Heartbeat."""
        ...


@frozen
class Presence:
    """What is said: ``registration`` as things are now, ``beat`` for a sequence number. ``hurry``
    is told how long a beat may take to be collected."""

    registration: Callable[[], RegisterNode]
    beat: Callable[[int], Awaitable[Heartbeat]]
    hurry: Callable[[timedelta], None] = lambda _: None


class Reporter:
    """``registrations`` and ``beats`` count what was accepted; ``membership`` is kept right."""

    def __init__(
        self,
        scheduler: SchedulerCalls,
        presence: Presence,
        gate: Gate,
        fence: LeaseFence,
        clock: Clock,
        rng: random.Random | None = None,
        *,
        membership: Membership | None = None,
    ) -> None:
        self.registrations = 0
        self.beats = 0
        self._membership = membership or Membership()
        self._scheduler = scheduler
        self._presence = presence
        self._gate = gate
        self._fence = fence
        self._clock = clock
        self._rng = rng or random.Random()
        self._sequence = 0
        self._told: RegisterNode | None = None
        self._interval = _DEFAULT_INTERVAL

    @property
    def problem(self) -> str:
        """Why the scheduler cannot be told of this node; empty while all is well."""
        return self._membership.problem

    async def run(self) -> None:
        """Register, beat, and begin again whenever that fails, until cancelled."""
        backoff = _FIRST_BACKOFF
        while True:
            was_heard = False
            answer = await self._register()
            if answer is not None:
                was_heard = await self._beat_until_it_fails(answer)
            if was_heard:
                backoff = _FIRST_BACKOFF
            if self.problem:  # else there is news, which is told at once
                await self._clock.sleep(backoff * (0.5 + self._rng.random()))
                longest = min(_LONGEST_BACKOFF, self._interval * _LONGEST_IN_INTERVALS)
                backoff = min(backoff * 2, longest)

    async def _register(self) -> RegisterAnswer | None:
        node = self._presence.registration()
        answer = await self._call(self._scheduler.register(node))
        if answer is None:
            return None
        if not answer.accepted:
            refusal = f"registration refused: {answer.reason}"
            self._fails(refusal, refusal=refusal if answer.id_taken else "")
            return None
        self._is_well()
        self.registrations += 1
        self._told = node
        structlog.get_logger().info("registered", node=node.node_id)
        return answer

    async def _beat_until_it_fails(self, registered: RegisterAnswer) -> bool:
        """Beat until one fails or there is something else to say; true if one was acknowledged."""
        interval = registered.heartbeat_interval
        if interval <= timedelta(0):
            interval = _DEFAULT_INTERVAL
        self._interval = interval
        self._presence.hurry(interval * _COLLECTING_IN_INTERVALS)
        was_heard = False
        while await self._beat(interval):
            was_heard = True
            await self._clock.sleep(interval)
            if self._presence.registration() != self._told:
                return was_heard
        return was_heard

    async def _beat(self, interval: timedelta) -> bool:
        self._sequence += 1
        beat = await self._call(self._presence.beat(self._sequence))
        if beat is None:
            return False
        sent_at = self._clock.monotonic()
        answer = await self._call(self._scheduler.heartbeat(beat))
        if answer is None:
            return False
        if not answer.known:
            self._fails("the scheduler does not know this node")
            return False
        self._drain(answer.drain_node)
        if not answer.acknowledged:
            self._fails("the scheduler did not acknowledge the heartbeat")
            return False
        self._is_well()
        self.beats += 1
        self._fence.heard(sent_at, self._lasts(answer, interval))
        return True

    def _lasts(self, answer: HeartbeatAnswer, interval: timedelta) -> timedelta:
        """How long the lease lasts from when the beat was sent. What a scheduler tells as an
        instant is by its own clock, so no more than a lease's length is believed."""
        if answer.confirmed is not None:
            return answer.confirmed
        told = answer.lease_expires_at - self._clock.now()
        return min(max(told, interval), interval * _LEASE_INTERVALS)

    def _drain(self, wanted: bool) -> None:
        if wanted != self._gate.is_draining:
            self._gate.is_draining = wanted
            structlog.get_logger().info("draining" if wanted else "not draining any more")

    async def _call(self, call: Awaitable[A]) -> A | None:
        try:
            async with asyncio.timeout(_CALL_DEADLINE.total_seconds()):
                return await call
        except (PersysError, OSError, TimeoutError) as error:
            self._fails(str(error) or "no answer in time")
            return None

    def _is_well(self) -> None:
        if self.problem:
            structlog.get_logger().info("the scheduler answers again")
        self._membership.problem = self._membership.refusal = ""

    def _fails(self, problem: str, *, refusal: str = "") -> None:
        if problem != self.problem:
            log = structlog.get_logger()
            if refusal:
                log.error("another agent has this node's id", problem=problem)
            else:
                log.warning("the scheduler cannot be told", problem=problem)
        self._membership.problem, self._membership.refusal = problem, refusal
