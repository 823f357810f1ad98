"""A small HTTP interface on the loopback address to break and mend simulated nodes.

=======  ===========================  =====================================
method   path                         what it does
=======  ===========================  =====================================
GET      /nodes                       lists the nodes
POST     /nodes                       adds a node
GET      /nodes/{id}                  shows one node
POST     /nodes/{id}/kill             switches it off (``?wipe=true``: empty)
POST     /nodes/{id}/pause            lets it answer nothing
POST     /nodes/{id}/revive           undoes both
=======  ===========================  =====================================

Answers are JSON; a wrong request gets ``{"error": …}`` that says what is accepted. It is for
tests and demos on one machine: there is no authentication and it never listens elsewhere.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from persys_agent.simulated.fleet import FleetNode, SimulatedFleet, UnknownNodeError

__all__ = ["ControlServer"]

_LOOPBACK = "127.0.0.1"
_READ_SECONDS = 5
_MAX_HEAD_BYTES = 16 * 1024
_PATHS = "GET /nodes, POST /nodes, GET /nodes/{id}, POST /nodes/{id}/kill|pause|revive"


@dataclass(frozen=True)
class _Request:
    method: str
    path: tuple[str, ...]
    query: dict[str, list[str]]


class _BadRequestError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        self.status = status
        super().__init__(message)


class ControlServer:
    """Serves a fleet's control interface; ``port`` 0 chooses one."""

    def __init__(self, fleet: SimulatedFleet, port: int = 0) -> None:
        self._fleet = fleet
        self._wanted_port = port
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that it listens on; raises ``RuntimeError`` before ``start``."""
        if self._server is None:
            raise RuntimeError("the control interface is not started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Begin to listen. Raises ``OSError`` where the port is taken."""
        self._server = await asyncio.start_server(
            self._serve, _LOOPBACK, self._wanted_port, limit=_MAX_HEAD_BYTES
        )

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, body = await self._respond(reader)
            writer.write(_response(status, body))
            await writer.drain()
        except (ConnectionError, TimeoutError):
            return
        finally:
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, object]:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            return HTTPStatus.OK, await self._answer(_parsed(head))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return HTTPStatus.BAD_REQUEST, {"error": "not an HTTP request"}
        except UnknownNodeError as error:
            return HTTPStatus.NOT_FOUND, {"error": str(error)}
        except _BadRequestError as error:
            return error.status, {"error": str(error)}

    async def _answer(self, request: _Request) -> object:
        match request.method, request.path:
            case "GET", ("nodes",):
                return {"nodes": [asdict(node) for node in self._fleet.nodes()]}
            case "POST", ("nodes",):
                return asdict(await self._fleet.add())
            case "GET", ("nodes", node_id):
                return asdict(self._fleet.node(node_id))
            case "POST", ("nodes", node_id, verb) if verb in _VERBS:
                return asdict(await self._act(node_id, verb, request.query))
            case _, ("nodes",) | ("nodes", _) | ("nodes", _, "kill" | "pause" | "revive"):
                raise _BadRequestError(
                    HTTPStatus.METHOD_NOT_ALLOWED,
                    f"{request.method} is not possible here; accepted: {_PATHS}",
                )
            case _:
                raise _BadRequestError(HTTPStatus.NOT_FOUND, f"no such path; accepted: {_PATHS}")

    async def _act(self, node_id: str, verb: str, query: dict[str, list[str]]) -> FleetNode:
        if verb == "kill":
            wipe = query.get("wipe", ["false"])[-1].lower() in ("true", "1", "yes")
            return await self._fleet.kill(node_id, wipe=wipe)
        return await _VERBS[verb](self._fleet, node_id)


_VERBS: dict[str, Callable[[SimulatedFleet, str], Awaitable[FleetNode]]] = {
    "kill": SimulatedFleet.kill,
    "pause": SimulatedFleet.pause,
    "revive": SimulatedFleet.revive,
}


def _parsed(head: bytes) -> _Request:
    line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(line) != 3 or not line[2].startswith("HTTP/"):
        raise _BadRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP request")
    parts = urlsplit(line[1])
    path = tuple(unquote(part) for part in parts.path.split("/") if part)
    return _Request(line[0], path, parse_qs(parts.query))


def _response(status: HTTPStatus, body: Any) -> bytes:
    payload = json.dumps(body, indent=2).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(payload)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + payload
