"""Tracer: spans around what the core does, so that a slow request can be followed. Never raises.

Decided here: what a span may say. It is a closed list of ids and words and never a text, so that no
spec, error or secret can get into one (decisions §5, secrets). Without an implementation a span
costs one call: nothing is built for it (ADR 15).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import StrEnum
from types import TracebackType
from typing import Protocol

from persys_core.model.ids import NodeId, WorkloadId

__all__ = ["NullTracer", "Span", "SpanName", "Tracer"]


class SpanName(StrEnum):
    """What is followed."""

    RECONCILE_PASS = "reconcile.pass"
    RECONCILE_WORK = "reconcile.work"
    COMMIT = "store.commit"
    AGENT_CALL = "agent.call"


class Span(Protocol):
    """One piece of work that is going on."""

    def ends_as(self, outcome: str) -> None:
        """How it ends, in one word of a closed set; an exception needs no word."""
        ...


class Tracer(Protocol):
    """Where spans come from. One that is begun within another is its child."""

    def span(
        self,
        name: SpanName,
        *,
        workload_id: WorkloadId = "",
        node_id: NodeId = "",
        operation: str = "",
        size: int = 0,
    ) -> AbstractContextManager[Span]:
        """Follow what happens within the context. What is empty or 0 is left out.

        ``operation``: an RPC or another word of a closed set. ``size``: how many things it is
        about. An exception that leaves the context marks the span, by its type alone.
        """
        ...

    def headers(self) -> tuple[tuple[str, str], ...]:
        """What tells a callee that it is part of the present span (W3C trace context)."""
        ...


class _NullSpan:
    """A span that nobody follows, and its own context."""

    def __enter__(self) -> Span:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def ends_as(self, outcome: str) -> None:
        """Nobody asks."""


_NULL_SPAN = _NullSpan()


class NullTracer:
    """Follows nothing; one shared span stands for all."""

    def span(
        self,
        name: SpanName,
        *,
        workload_id: WorkloadId = "",
        node_id: NodeId = "",
        operation: str = "",
        size: int = 0,
    ) -> AbstractContextManager[Span]:
        """Follow nothing."""
        return _NULL_SPAN

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Nothing to tell."""
        return ()
