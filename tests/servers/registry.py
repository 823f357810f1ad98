"""An image registry that has no image: it only refuses, each repository in its own way.

Who shows no credentials is asked for some, and may not even learn what is there.

``secret/…`` wants credentials (401), ``denied/…`` has others in mind (403), ``broken/…`` fails
(500), ``slow/…`` never answers, and everything else is unknown (404).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from attrs import define, field

__all__ = ["Registry", "run_registry"]

_REFUSALS = {"secret": (401, "UNAUTHORIZED"), "denied": (403, "DENIED"), "broken": (500, "UNKNOWN")}
_UNKNOWN = (404, "MANIFEST_UNKNOWN")


@define
class Registry:
    """Where it listens, and which credentials it was shown."""

    address: str = ""
    shown: set[str] = field(factory=set)
    over: threading.Event = field(factory=threading.Event)


@contextmanager
def run_registry(*, asks_who: bool = True) -> Iterator[Registry]:
    """A registry on a free port of loopback; without ``asks_who`` everybody may learn what is
    there."""
    registry = Registry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry, asks_who=asks_who))
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        registry.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(registry: Registry, *, asks_who: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = self.headers.get("Authorization", "")
            registry.shown.add(shown)
            if asks_who and not shown:
                self._answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "who?"}]})
                return
            if self.path == "/v2/":
                self._answer(200, {})
                return
            repository = self.path.split("/")[2]
            if repository == "slow":
                registry.over.wait(30)
            status, code = _REFUSALS.get(repository, _UNKNOWN)
            self._answer(status, {"errors": [{"code": code, "message": "told by the registry"}]})

        do_HEAD = do_GET

        def log_message(self, format: str, *words: object) -> None:
            pass

        def _answer(self, status: int, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if status == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler
