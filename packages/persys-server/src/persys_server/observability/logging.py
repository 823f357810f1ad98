"""Log lines: structlog and the standard library end in one place, as text or as JSON.

Decided here: the fields ``level``, ``msg``, ``time`` and ``component``, that every line is
cleaned of secrets just before it is written (field report A04), that a line within a span says
which, and that only our own loggers say ``debug``. Not decided here: what is worth a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from persys_core.model.secrets import MASK, is_secret_name, scrubbed
from persys_server.observability.library_lines import LibraryLines
from persys_server.observability.present import present_span
from persys_server.settings import LogFormat

__all__ = ["Scrubber", "configure_logging", "request_secrets"]

request_secrets: ContextVar[frozenset[str]] = ContextVar("request_secrets", default=frozenset())
"""The secrets of the request that is being served; no line that it causes contains them."""

_OWN_LOGGERS = ("persys", "persys_adapters", "persys_core", "persys_server")
_DEEPEST = 6
_OWN_FIELDS = frozenset({"level", "time", "component", "request_id", "trace_id", "span_id"})


class Scrubber:
    """A processor that masks secrets: by the name of a field, by value, and inside URLs."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known = frozenset(known)

    def __call__(self, logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
        secrets = self._known | request_secrets.get()
        return {
            key: value if key in _OWN_FIELDS else _clean(key, value, secrets, _DEEPEST)
            for key, value in line.items()
        }


def _clean(name: str, value: Any, secrets: frozenset[str], depth: int) -> Any:
    if is_secret_name(name):
        return MASK
    return _clean_value(value, secrets, depth)


def _clean_value(value: Any, secrets: frozenset[str], depth: int) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return scrubbed(value, secrets)
        case Mapping() if depth:
            return {
                str(key): _clean(str(key), item, secrets, depth - 1) for key, item in value.items()
            }
        case list() | tuple() | set() | frozenset() if depth:
            return [_clean_value(item, secrets, depth - 1) for item in value]
        case _:
            return scrubbed(str(value), secrets)


def configure_logging(
    level: str,
    form: LogFormat,
    *,
    stream: TextIO | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Send every line of structlog and of the standard library to ``stream`` (standard output).

    ``level`` is a name as ``settings.log_level`` has it; libraries are heard from ``info`` on,
    since what they tell at ``debug`` would bury our own lines. Text is coloured on a terminal only.
    Calling it again replaces what was configured before.
    """
    target = sys.stdout if stream is None else stream
    handler = logging.StreamHandler(target)
    handler.addFilter(LibraryLines())
    handler.setFormatter(_formatter(form, colours=target.isatty(), secrets=secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.getLevelName(level.upper()), logging.INFO))
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(level.upper())
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _shared() -> list[Processor]:
    """What both kinds of line go through, whoever wrote them."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        _add_component,
        _add_span,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
    ]


def _add_component(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """The part of the server that speaks: as bound, else the logger's name."""
    record = line.get("_record")
    name = record.name if record is not None else getattr(logger, "name", None)
    line.setdefault("component", name or "persys_server")
    return line


def _add_span(logger: WrappedLogger, method: str, line: EventDict) -> EventDict:
    """The span in which the line is written, so that traces lead to lines and back."""
    span = present_span.get()
    if span is not None:
        line["trace_id"], line["span_id"] = span.trace_id, span.span_id
    return line


def _formatter(
    form: LogFormat, *, colours: bool, secrets: Iterable[str]
) -> structlog.stdlib.ProcessorFormatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            Scrubber(secrets),
            *_rendering(form, colours=colours),
        ],
    )


def _rendering(form: LogFormat, *, colours: bool) -> list[Processor]:
    if form is LogFormat.JSON:
        return [
            structlog.processors.EventRenamer("msg"),
            structlog.processors.JSONRenderer(default=str),
        ]
    return [structlog.dev.ConsoleRenderer(colors=colours, timestamp_key="time")]
