"""Variables of a Compose file."""

from __future__ import annotations

import pytest

from persys_agent.runtimes.compose.reading import replaced


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
