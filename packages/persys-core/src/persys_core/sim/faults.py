"""What the network between the scheduler and simulated nodes does to calls.

Decided here: the faults and their meaning, seen from the caller. A request may be lost (nothing
happens) or its reply may be (it was carried out and nobody knows); both look the same: no answer
before the deadline. A link may be cut in one direction. A duplicate arrives a while later. A
paused node takes requests in and carries them out when it goes on, long after the caller left.

All chance is drawn from one stream per node and a fixed number of times per call, so that a run
replays from its seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId
from persys_core.sim.agent_settings import Latency
from persys_core.sim.rng import stream

__all__ = ["LinkFaults", "Network", "NoAnswerError"]

T = TypeVar("T")
_QUICK = Latency.of(0.0005, 0.005)
_LATE = Latency.of(0, 30)


class NoAnswerError(PersysError):
    """The call brought no answer: the peer refused the connection, or the deadline passed."""

    def __init__(self, message: str, *, deadline_exceeded: bool = False) -> None:
        self.deadline_exceeded = deadline_exceeded
        super().__init__(message)


@frozen
class LinkFaults:
    """Rates are shares of all calls, 0 to 1; ``latency`` is one way."""

    latency: Latency = _QUICK
    lost_request: float = 0.0
    lost_reply: float = 0.0
    duplicate: float = 0.0
    duplicate_after: Latency = _LATE


@define(eq=False)
class _Link:
    """The state of one node and of its wires. ``inbox``: what waits for a paused node."""

    is_down: bool = False
    is_paused: bool = False
    is_cut_to_node: bool = False
    is_cut_from_node: bool = False
    inbox: list[Callable[[], None]] = field(factory=list)


@define(eq=False)
class _Exchange(Generic[T]):
    """One request on its way, and where its answer goes."""

    work: Callable[[], Awaitable[T]]
    answer: asyncio.Future[T]
    to_node: bool
    reply_delay: float
    reply_is_lost: bool


class Network:
    """All links. ``faults`` may be set to other rates at any time."""

    def __init__(self, seed: int = 0, faults: LinkFaults | None = None) -> None:
        self.faults = faults or LinkFaults()
        self._seed = seed
        self._links: dict[NodeId, _Link] = {}
        self._chance: dict[NodeId, random.Random] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take_down(self, node_id: NodeId) -> None:
        """Nobody listens on the node any more; what it had not answered stays unanswered."""
        link = self._link(node_id)
        link.is_down, link.is_paused = True, False
        link.inbox.clear()

    def bring_up(self, node_id: NodeId) -> None:
        """The node listens again."""
        self._link(node_id).is_down = False

    def pause(self, node_id: NodeId) -> None:
        """The node takes requests in and does nothing."""
        self._link(node_id).is_paused = True

    def resume(self, node_id: NodeId) -> None:
        """The node goes on, with everything that came in meanwhile."""
        link = self._link(node_id)
        link.is_paused = False
        waiting, link.inbox = link.inbox, []
        for carry_out in waiting:
            carry_out()

    def cut(self, node_id: NodeId, *, to_node: bool = True, from_node: bool = True) -> None:
        """Drop every message in the given directions; heal with both false."""
        link = self._link(node_id)
        link.is_cut_to_node, link.is_cut_from_node = to_node, from_node

    async def call(
        self,
        node_id: NodeId,
        work: Callable[[], Awaitable[T]],
        timeout: timedelta,
        *,
        to_node: bool = True,
    ) -> T:
        """Carry a request to the other side, do ``work`` there and bring its answer back.

        Raises ``NoAnswerError``, and whatever ``work`` raises. The request goes on by itself when
        the caller is cancelled or its deadline passes.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._send(node_id, work, answer, to_node)
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                return await answer
        except TimeoutError:
            seconds = timeout.total_seconds()
            raise NoAnswerError(f"no answer within {seconds:g} s", deadline_exceeded=True) from None

    def _send(
        self,
        node_id: NodeId,
        work: Callable[[], Awaitable[T]],
        answer: asyncio.Future[T],
        to_node: bool,
    ) -> None:
        there, back, late, lost, reply_lost, doubled = self._draw(node_id)
        faults, loop = self.faults, asyncio.get_running_loop()
        exchange = _Exchange(
            work,
            answer,
            to_node,
            faults.latency.at(back).total_seconds(),
            reply_lost < faults.lost_reply,
        )
        if lost < faults.lost_request or self._is_cut(node_id, to_node=to_node):
            return
        delay = faults.latency.at(there).total_seconds()
        loop.call_later(delay, self._arrive, node_id, exchange)
        if doubled < faults.duplicate:
            extra = faults.duplicate_after.at(late).total_seconds()
            loop.call_later(delay + extra, self._arrive, node_id, exchange)

    def _draw(self, node_id: NodeId) -> tuple[float, ...]:
        rng = self._chance.setdefault(node_id, stream(self._seed, "link", node_id))
        return tuple(rng.random() for _ in range(6))

    def _link(self, node_id: NodeId) -> _Link:
        return self._links.setdefault(node_id, _Link())

    def _is_cut(self, node_id: NodeId, *, to_node: bool) -> bool:
        link = self._link(node_id)
        return link.is_cut_to_node if to_node else link.is_cut_from_node

    def _arrive(self, node_id: NodeId, exchange: _Exchange[Any]) -> None:
        link = self._link(node_id)
        if exchange.to_node and link.is_down:
            _settle(exchange.answer, error=NoAnswerError("connection refused"))
        elif exchange.to_node and link.is_paused:
            link.inbox.append(lambda: self._carry_out(node_id, exchange))
        else:
            self._carry_out(node_id, exchange)

    def _carry_out(self, node_id: NodeId, exchange: _Exchange[Any]) -> None:
        self._spawn(self._work(node_id, exchange))

    async def _work(self, node_id: NodeId, exchange: _Exchange[Any]) -> None:
        answer = exchange.answer
        try:
            result = await exchange.work()
        except Exception as error:  # whatever the other side raises is the caller's to see
            _settle(answer, error=error)
            return
        lost = exchange.reply_is_lost or self._link(node_id).is_down
        if not lost and not self._is_cut(node_id, to_node=not exchange.to_node):
            loop = asyncio.get_running_loop()
            loop.call_later(exchange.reply_delay, lambda: _settle(answer, result))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _settle(
    answer: asyncio.Future[Any], result: object = None, error: Exception | None = None
) -> None:
    """Hand an answer over, unless the caller left or has one already."""
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
