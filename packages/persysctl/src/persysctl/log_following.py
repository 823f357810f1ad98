"""Following the output of a workload through restarts and moves.

Decided here: when a stream that ended is gone on with, and where. The scheduler is asked after each
end; while a stream is silent it is asked from time to time as well, so that a machine that died
without a word is noticed. It is over when the workload is deleted, stopped, or ended for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from persys_proto.agent.v1 import agent_pb2 as wire
from persysctl.agent import Place
from persysctl.client import Client
from persysctl.errors import ConnectionLostError, CtlError, RefusedError
from persysctl.log_resume import Bookmark
from persysctl.whereabouts import is_over, locate, place_of

__all__ = ["LogFollower", "Pace"]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: the pauses between attempts, and between looks while a stream is open."""

    first_pause: float = 0.2
    longest_pause: float = 5.0
    look: float = 5.0


class LogFollower:
    """Follows one workload. ``show`` gets each line and its node, ``note`` words for the person."""

    def __init__(
        self,
        client: Client,
        workload_id: str,
        show: Callable[[wire.LogLine, str], None],
        note: Callable[[str], None],
        pace: Pace | None = None,
    ) -> None:
        self._client = client
        self._workload_id = workload_id
        self._show = show
        self._note = note
        self._pace = pace or Pace()
        self._pause = self._pace.first_pause
        self._told = ""
        self._is_begun = False

    async def follow(self, tail: int) -> None:
        """Return when the output is over. Raises CtlError where it could not be begun, and where
        somebody says no for good."""
        place: Place | None = await locate(self._client, self._workload_id)
        bookmark = Bookmark(tail)
        while place is not None:
            ended = await self._read(place, bookmark)
            self._tell(ended)
            following = await self._next_place()
            if following is not None and following != place:
                self._tell(f"{self._workload_id} is on {following.node_id} now")
            place = following

    async def _read(self, place: Place, bookmark: Bookmark) -> str:
        """Show lines until they end there; says how they ended."""
        agent = self._client.agent_at(place)
        try:
            async with agent:
                request = wire.StreamLogsRequest(
                    id=self._workload_id, tail=bookmark.resumed_at(place), follow=True
                )
                lines = agent.logs(request)
                async with aclosing(lines):
                    reading = asyncio.create_task(self._show_all(lines, place, bookmark))
                    if not await self._ends_before_a_move(reading, place):
                        return f"{self._workload_id} is no longer on {place.node_id}"
            self._is_begun = True
            return f"the output of {self._workload_id} on {place.node_id} ended"
        except CtlError as error:
            lost = isinstance(error, ConnectionLostError) and agent.was_connected
            self._is_begun = self._is_begun or lost
            if not self._is_begun or not _passes(error):
                raise
            return str(error).splitlines()[0]

    async def _show_all(
        self, lines: AsyncGenerator[wire.LogLine, None], place: Place, bookmark: Bookmark
    ) -> None:
        async for line in lines:
            self._is_begun = True
            if bookmark.is_new(line):
                self._pause, self._told = self._pace.first_pause, ""
                self._show(line, place.node_id)

    async def _ends_before_a_move(self, reading: asyncio.Task[None], place: Place) -> bool:
        """Wait for the end of the lines; whether it came. Twice looked and elsewhere is a move: the
        first look leaves the old node time to say its last."""
        looks_elsewhere = 0
        try:
            while looks_elsewhere < 2:
                done, _ = await asyncio.wait((reading,), timeout=self._pace.look)
                if done:
                    reading.result()
                    return True
                looks_elsewhere = looks_elsewhere + 1 if await self._is_elsewhere(place) else 0
            return False
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _is_elsewhere(self, place: Place) -> bool:
        """Whether the scheduler is sure that the workload is no longer there."""
        try:
            view = (await self._client.workload(self._workload_id)).workload
            return await place_of(self._client, view) != place
        except RefusedError as error:
            return error.not_found
        except CtlError:
            return False

    async def _next_place(self) -> Place | None:
        """Where the output goes on, once there is such a place; ``None``: it is over."""
        while True:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, self._pace.longest_pause)
            try:
                view = (await self._client.workload(self._workload_id)).workload
                if is_over(view):
                    self._tell(f"{self._workload_id} is {view.status}")
                    return None
                place = await place_of(self._client, view)
            except CtlError as error:
                if isinstance(error, RefusedError) and error.not_found:
                    self._tell(f"{self._workload_id} was deleted")
                    return None
                if not _passes(error):
                    raise
                self._tell(f"{str(error).splitlines()[0]}; trying again")
                continue
            if place is not None:
                return place
            self._tell(f"{self._workload_id} is on no node; waiting ({view.status})")

    def _tell(self, text: str) -> None:
        """Say it once, however often it comes in a row."""
        if text != self._told:
            self._told = text
            self._note(text)


def _passes(error: CtlError) -> bool:
    """Whether it may be otherwise in a moment."""
    return not isinstance(error, RefusedError) or error.retryable
