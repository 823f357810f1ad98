"""The span in which the present piece of work runs, for log lines and exemplars.

Decided here: under which names it is told. It is set by ``otel`` and empty where nothing is traced.
"""

from __future__ import annotations

from contextvars import ContextVar

from attrs import frozen

__all__ = ["PresentSpan", "exemplar", "present_span"]


@frozen
class PresentSpan:
    """Its ids in hexadecimal, and whether it is kept."""

    trace_id: str
    span_id: str
    is_kept: bool


present_span: ContextVar[PresentSpan | None] = ContextVar("present_span", default=None)


def exemplar() -> dict[str, str] | None:
    """What ties a measurement to its trace, where there is one that is kept."""
    span = present_span.get()
    if span is None or not span.is_kept:
        return None
    return {"trace_id": span.trace_id, "span_id": span.span_id}
