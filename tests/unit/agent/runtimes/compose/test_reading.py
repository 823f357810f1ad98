"""Variables and inheritance of a Compose file."""

from __future__ import annotations

import pytest

from persys_agent.runtimes.compose.reading import replaced, with_inherited


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A/${A}", "a/a"),
        ("$$A ${B}", "$A "),
        ("${E} ${E-x} ${E:-x} ${B-x} ${B:-x}", "  x x x"),
        ("${A:+x}${E:+x}${E+x}${B+x}", "xx"),
        ("${A:?needed}", "a"),
        ("${A", "${A"),
    ],
)
def test_variables(text: str, value: str) -> None:
    """As Compose replaces them: set, empty and missing ones, with and without a default."""
    assert replaced({"k": [text]}, {"A": "a", "E": ""}) == {"k": [value]}


def test_a_service_has_what_it_inherits() -> None:
    """Over several steps, lists of all; a circle ends."""
    services: dict[str, dict[str, object]] = {
        "a": {"cap_add": ["X"], "pid": "host", "deploy": {"x": 1}},
        "b": {"extends": {"service": "a"}, "cap_add": ["Y"], "deploy": {"y": 2}},
        "c": {"extends": "b", "pid": ""},
        "d": {"extends": "e"},
        "e": {"extends": "d", "tty": True},
    }
    found = with_inherited("c", services)
    assert (found["cap_add"], found["pid"], found["deploy"]) == (["X", "Y"], "", {"x": 1, "y": 2})
    assert with_inherited("d", services)["tty"] is True
