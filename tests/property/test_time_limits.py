"""A time limit that strikes within a drawn example reads as flaky data, so it is out of reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.internal.conjecture.engine import MAX_SHRINKING_SECONDS


@given(drawn=st.none())
def test_limit_of_a_drawn_test_outlasts_shrinking(
    request: pytest.FixtureRequest, drawn: None
) -> None:
    """Longer than hypothesis works on a failure, so that a real one is shown as what it is."""
    limit = request.node.get_closest_marker("timeout")
    assert limit is not None
    assert limit.args[0] >= 2 * MAX_SHRINKING_SECONDS


def test_limit_of_other_tests_is_the_common_one(request: pytest.FixtureRequest) -> None:
    """A test that hangs is found in two minutes."""
    assert request.node.get_closest_marker("timeout") is None
