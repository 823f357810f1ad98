"""Firecracker's API over its unix socket, as its swagger file documents it.

Decided here: how answers become values and errors. A fault (``fault_message``) is Firecracker's
answer: ``RuntimeFailedError``; a socket that does not answer: ``RuntimeUnavailableError``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import aiohttp
from attrs import frozen

from persys_agent.runtimes.port import (
    FailureCode,
    RuntimeFailedError,
    RuntimeUnavailableError,
)

__all__ = ["Action", "FirecrackerApi", "GuestState", "InstanceInfo"]

_BAD_REQUEST = 400


class Action(StrEnum):
    """What ``PUT /actions`` does."""

    START = "InstanceStart"
    CTRL_ALT_DEL = "SendCtrlAltDel"


class GuestState(StrEnum):
    """The state in ``GET /``."""

    NOT_STARTED = "Not started"
    RUNNING = "Running"
    PAUSED = "Paused"


@frozen
class InstanceInfo:
    """The answer of ``GET /``."""

    id: str
    state: GuestState
    version: str


@frozen
class FirecrackerApi:
    """One Firecracker process. ``timeout`` is for each call."""

    socket: Path
    timeout: timedelta

    async def info(self) -> InstanceInfo:
        """Who answers, and how its guest is."""
        answer = await self._request("GET", "/")
        try:
            state = GuestState(str(answer["state"]))
            return InstanceInfo(str(answer["id"]), state, str(answer.get("vmm_version", "")))
        except (KeyError, ValueError) as error:
            text = f"{self.socket} does not speak Firecracker's API"
            raise RuntimeUnavailableError(text) from error

    async def put(self, path: str, body: Mapping[str, object]) -> None:
        """Configure something, before the guest is started."""
        await self._request("PUT", path, body)

    async def act(self, action: Action) -> None:
        """Start the guest, or press its keys."""
        await self._request("PUT", "/actions", {"action_type": action.value})

    async def resume(self) -> None:
        """Let a paused guest go on."""
        await self._request("PATCH", "/vm", {"state": "Resumed"})

    async def _request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> Mapping[str, object]:
        connector = aiohttp.UnixConnector(str(self.socket))
        limit = aiohttp.ClientTimeout(total=self.timeout.total_seconds())
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=limit) as session,
                session.request(method, f"http://localhost{path}", json=body) as response,
            ):
                status, text = response.status, await response.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            text = f"firecracker at {self.socket} does not answer: {reason}"
            raise RuntimeUnavailableError(text) from error
        answer = _document(text)
        if status >= _BAD_REQUEST:
            fault = answer.get("fault_message", f"status {status}")
            text = f"firecracker refused {method} {path}: {fault}"
            raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, text)
        return answer


def _document(text: str) -> Mapping[str, object]:
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
