from __future__ import annotations

from datetime import timedelta

import pytest

from persys_core.settings.texts import LogFormat, Span, choice, flag, log_level, whole


@pytest.mark.parametrize("given", ["true", "T", "1", "yes", "ON", "y"])
def test_a_switch_that_is_on(given: str) -> None:
    """In any case, and as programs in Go write it."""
    assert flag(given)
    with pytest.raises(ValueError, match="true or false"):
        flag(f"{given}?")


@pytest.mark.parametrize("given", ["-1", "11", "1.5", "", "٣", "1e1", "9" * 5000])
def test_a_number_outside_is_refused_with_what_is_accepted(given: str) -> None:
    """Digits of other scripts and endless ones are no numbers."""
    with pytest.raises(ValueError, match="a whole number from 0 to 10"):
        whole(0, 10)(given)


def test_spans_choices_and_levels() -> None:
    """What all programs read alike."""
    assert Span("1s")("1h30m") == timedelta(minutes=90)
    assert Span("1s", or_never=True)("0") == timedelta(0)
    for wrong in ("0", "500ms", "٣s", "-1s", "1d"):
        with pytest.raises(ValueError, match="a duration"):
            Span("1s")(wrong)
    assert choice(LogFormat)("JSON") is LogFormat.JSON
    assert log_level("WARN") == "warning"
