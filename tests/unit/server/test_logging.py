"""Log lines: their fields, their two forms, and that no secret is in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from persys_server.observability.logging import Scrubber, configure_logging, request_secrets
from persys_server.settings import LogFormat

OURS = ("persys", "persys_adapters", "persys_core", "persys_server")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Whatever a test configures is taken back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    ours = [logging.getLogger(name) for name in OURS]
    levels = [logger.level for logger in ours]
    yield
    for logger, before in zip(ours, levels, strict=True):
        logger.setLevel(before)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(form: LogFormat = LogFormat.JSON, level: str = "info", **secrets: str) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, form, stream=stream, secrets=secrets.values())
    return stream


def test_both_kinds_of_logger_write_the_same_fields() -> None:
    """structlog and the standard library give level, msg, time and component."""
    stream = lines()
    structlog.stdlib.get_logger("ours").warning("one", count=1)
    logging.getLogger("theirs").warning("two %s", "x")
    ours, theirs = map(json.loads, stream.getvalue().splitlines())
    assert (ours["level"], ours["msg"], ours["component"]) == ("warning", "one", "ours")
    assert (theirs["level"], theirs["msg"], theirs["component"]) == ("warning", "two x", "theirs")
    assert ours["count"] == 1
    assert ours["time"].endswith("Z")


def test_lines_below_the_level_are_left_out() -> None:
    """LOG_LEVEL holds for both kinds."""
    stream = lines(level="error")
    structlog.stdlib.get_logger("a").info("no")
    logging.getLogger("b").info("no")
    assert stream.getvalue() == ""


def test_debug_is_for_our_own_lines() -> None:
    """LOG_LEVEL=debug is not flooded by libraries, and a higher level holds for all."""
    stream = lines(level="debug")
    logging.getLogger("grpc._cython.cygrpc").debug("Loaded running loop")
    logging.getLogger("asyncio").info("theirs")
    structlog.stdlib.get_logger("persys_server.run").debug("ours")
    logging.getLogger("persys.scheduler").debug("too")
    told = [json.loads(line)["msg"] for line in stream.getvalue().splitlines()]
    assert told == ["theirs", "ours", "too"]
    stream = lines(level="error")
    logging.getLogger("persys_server.run").warning("no")
    assert stream.getvalue() == ""


def test_text_has_no_colours_off_a_terminal() -> None:
    """A file or a pipe gets plain text."""
    stream = lines(LogFormat.TEXT)
    structlog.stdlib.get_logger("a").info("hello", at="x")
    assert "hello" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_secrets_are_masked_wherever_they_are() -> None:
    """A04: by field name, by known value, inside URLs, in nested values and in tracebacks."""
    stream = lines(known="s3cr3t-XYZ")
    log = structlog.stdlib.get_logger("a")
    log.info("got s3cr3t-XYZ", password="pw1", url="redis://u:pw2@h", env={"API_KEY": "pw3"})
    request_secrets.set(frozenset({"pw4-of-request"}))
    try:
        raise ValueError("agent said pw4-of-request")
    except ValueError:
        log.exception("failed", values=["redis://u:pw5@h"])
    logging.getLogger("b").error("token is %s", "s3cr3t-XYZ")
    for secret in ("s3cr3t-XYZ", "pw1", "pw2", "pw3", "pw4-of-request", "pw5"):
        assert secret not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_odd_values_do_not_break_a_line() -> None:
    """Whatever is logged, the line is written."""
    loop: list[object] = []
    loop.append(loop)
    cleaned = Scrubber()(None, "info", {"event": "x", "a": object(), "loop": loop, "n": None})
    assert cleaned["event"] == "x"
    assert cleaned["n"] is None
