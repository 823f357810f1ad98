"""``SchedulerLink``: the calls to the scheduler over a channel that follows the certificates.

Decided here: that a channel is replaced, before a call, when the TLS files hold something else.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc.aio

from persys_agent.control_client import ControlClient
from persys_core.control.answers import HeartbeatAnswer, RegisterAnswer
from persys_core.control.requests import Heartbeat, RegisterNode

__all__ = ["SchedulerLink"]


class SchedulerLink:
    """``open_channel`` opens one with what ``material`` gives; another object, another channel."""

    def __init__(
        self,
        open_channel: Callable[[object], grpc.aio.Channel],
        make_client: Callable[[grpc.aio.Channel], ControlClient],
        material: Callable[[], object] = lambda: None,
    ) -> None:
        self._open_channel = open_channel
        self._make_client = make_client
        self._material = material
        self._used: object = None
        self._channel: grpc.aio.Channel | None = None
        self._client: ControlClient | None = None

    async def register(self, node: RegisterNode) -> RegisterAnswer:
        """RegisterNode. Raises ``NoAnswerError``."""
        return await (await self._current()).register(node)

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatAnswer:
        """Heartbeat. Raises ``NoAnswerError``."""
        return await (await self._current()).heartbeat(beat)

    async def aclose(self) -> None:
        """Close the connection; a later call opens another."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = self._client = None

    async def _current(self) -> ControlClient:
        material = self._material()
        if self._client is None or material is not self._used:
            await self.aclose()
            self._channel = self._open_channel(material)
            self._client, self._used = self._make_client(self._channel), material
        return self._client
