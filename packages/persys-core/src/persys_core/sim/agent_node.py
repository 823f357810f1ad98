"""How a node keeps in touch with the scheduler: registration, heartbeats and what follows failure.

Decided here: the loop of the agents in the field, and the gentler one of ours. They differ where
the scheduler takes a registration and then fails the heartbeats: existing agents register again
without any wait, ours waits longer each time. The transport is two coroutines that are passed in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from attrs import define, field

from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.errors import PersysError
from persys_core.ports.clock import Clock
from persys_core.sim.agent import AgentModel

__all__ = ["SendHeartbeat", "SendRegistration", "SimulatedNode"]

T = TypeVar("T")
Answer = TypeVar("Answer")
SendRegistration: TypeAlias = Callable[[RegisterNode], Awaitable[RegisterAnswer]]
SendHeartbeat: TypeAlias = Callable[[Heartbeat], Awaitable[HeartbeatAnswer]]

_CALL_DEADLINE = timedelta(seconds=10)
_DEFAULT_INTERVAL = timedelta(seconds=10)
_FIRST_BACKOFF = timedelta(seconds=1)
_LONGEST_BACKOFF = timedelta(seconds=30)


@define(eq=False)
class SimulatedNode:
    """Runs until it is cancelled. ``gate`` is cleared while the process is paused.

    Both callables may raise ``PersysError`` (``NoAnswerError`` included), ``OSError`` or
    ``TimeoutError``; anything else is a bug and ends the loop.
    """

    model: AgentModel
    register: SendRegistration
    heartbeat: SendHeartbeat
    clock: Clock
    rng: random.Random
    gate: asyncio.Event
    registrations: int = field(default=0, init=False)
    problem: str = field(default="", init=False)
    """Why the last call failed; empty while all is well."""
    drain_requested: bool = field(default=False, init=False)
    """What the scheduler last said; existing agents only log it."""

    async def run(self) -> None:
        """Register, beat, and begin again whenever that fails."""
        backoff = _FIRST_BACKOFF
        while True:
            answer = await self._call(self.register, self.model.registration())
            accepted = answer is not None and answer.accepted
            if answer is not None and accepted:
                self.registrations += 1
                was_heard = await self._beat_until_it_fails(answer)
                if self.model.settings.hot_reregister or was_heard:
                    backoff = _FIRST_BACKOFF
                if self.model.settings.hot_reregister:
                    continue
            elif answer is not None:
                self.problem = f"registration refused: {answer.reason}"
            await self.clock.sleep(self._jittered(backoff))
            backoff = min(backoff * 2, _LONGEST_BACKOFF)

    async def _beat_until_it_fails(self, registered: RegisterAnswer) -> bool:
        """Beat until a beat fails or the lease is over; true if at least one was answered."""
        interval, lease = registered.heartbeat_interval, registered.lease_expires_at
        if interval <= timedelta(0):
            interval = _DEFAULT_INTERVAL
        was_heard = False
        while True:
            answer = await self._beat()
            if answer is None:
                return was_heard
            was_heard, lease = True, answer.lease_expires_at
            self.drain_requested = answer.drain_node
            await self.clock.sleep(interval)
            if _is_over(lease, self.clock.now()):
                return was_heard

    async def _beat(self) -> HeartbeatAnswer | None:
        """One heartbeat; ``None`` where it failed or the scheduler does not know the node."""
        await self.gate.wait()
        if self.model.settings.heartbeat_collection:
            await self.clock.sleep(self.model.settings.heartbeat_collection)
            await self.gate.wait()
        answer = await self._call(self.heartbeat, self.model.heartbeat(self.clock.now()))
        if answer is not None and not answer.known:
            self.problem = "the scheduler does not know this node"
            return None
        return answer

    async def _call(self, send: Callable[[T], Awaitable[Answer]], message: T) -> Answer | None:
        await self.gate.wait()
        try:
            async with asyncio.timeout(_CALL_DEADLINE.total_seconds()):
                answer = await send(message)
        except (PersysError, OSError, TimeoutError) as error:
            self.problem = str(error) or "no answer in time"
            return None
        await self.gate.wait()
        self.problem = ""
        return answer

    def _jittered(self, backoff: timedelta) -> timedelta:
        if self.model.settings.hot_reregister:
            return backoff
        return backoff * (0.5 + self.rng.random())


def _is_over(lease: datetime, now: datetime) -> bool:
    return lease < now
