"""What the server asks of tracing, and its absence.

Decided here: that tracing is off where no endpoint is set, and then costs neither an import nor a
thread. Spans are made and sent in ``otel``, which alone knows OpenTelemetry's SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Protocol, TypeAlias

from persys_core.ports.tracer import NullTracer, Tracer
from persys_server.settings import Settings

__all__ = ["Headers", "NoTraces", "Served", "Traces", "open_traces"]

Headers: TypeAlias = Iterable[tuple[str, str | bytes]]
"""What a caller sent along, by lower-case names."""


class Served(Protocol):
    """The span of one request that is being served. It ends with ``end``, once."""

    def current(self) -> AbstractContextManager[None]:
        """What happens within the context is part of it."""
        ...

    def about(self, request: object) -> None:
        """Say whom the request is about, by the closed list of ``request_facts``."""
        ...

    def end(self, code: int, *, failed: bool) -> None:
        """The request was answered with this status code."""
        ...


class Traces(Protocol):
    """The spans of one replica."""

    @property
    def tracer(self) -> Tracer:
        """The core's port."""
        ...

    def rpc(self, method: str, headers: Headers) -> Served:
        """A gRPC request came in; ``method`` is the full path."""
        ...

    def page(self, route: str, headers: Headers) -> Served:
        """An HTTP request came in for one of our pages."""
        ...

    async def aclose(self) -> None:
        """Send what is left, for a short while only."""
        ...


class _Unserved:
    """The span of a request that nobody follows."""

    def current(self) -> AbstractContextManager[None]:
        """Nothing to be part of."""
        return _NOTHING

    def about(self, request: object) -> None:
        """Nobody listens."""

    def end(self, code: int, *, failed: bool) -> None:
        """Nobody listens."""


_NOTHING: AbstractContextManager[None] = nullcontext()
_UNSERVED = _Unserved()


class NoTraces:
    """Tracing is off."""

    tracer: Tracer = NullTracer()

    def rpc(self, method: str, headers: Headers) -> Served:
        """Follow nothing."""
        return _UNSERVED

    def page(self, route: str, headers: Headers) -> Served:
        """Follow nothing."""
        return _UNSERVED

    async def aclose(self) -> None:
        """Nothing is left."""


def open_traces(settings: Settings) -> Traces:
    """The spans of a replica with these settings."""
    if settings.otlp_endpoint is None:
        return NoTraces()
    # Half a second and some megabytes, which only those pay who trace.
    start: Callable[[Settings], Traces] = import_module("persys_server.observability.otel").start
    return start(settings)
