from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from persys_core.retry.policy import RetryPolicy

POLICY = RetryPolicy()


def seconds(delays: list[timedelta]) -> list[float]:
    return [delay.total_seconds() for delay in delays]


def test_delays_double_up_to_the_cap() -> None:
    """5, 10, 20, 40, 80 seconds, then two minutes for ever (decisions, values: retry)."""
    delays = [POLICY.delay_before(attempt) for attempt in range(1, 9)]
    assert seconds(delays) == [5, 10, 20, 40, 80, 120, 120, 120]


def test_fast_attempts_come_at_once() -> None:
    """With two fast attempts the row is the reference's: 0, 0, 5, 10, 20."""
    policy = RetryPolicy(fast_attempts=2)
    assert seconds([policy.delay_before(attempt) for attempt in range(1, 6)]) == [0, 0, 5, 10, 20]


def test_infrastructure_delays_have_no_end_and_no_fast_ones() -> None:
    """An outage of any length is waited out at the cap, and never overflows."""
    policy = RetryPolicy(fast_attempts=2)
    delays = [policy.infrastructure_delay(failures) for failures in (1, 2, 6, 10**6)]
    assert seconds(delays) == [5, 10, 120, 120]


def test_a_base_above_the_cap_is_capped() -> None:
    """The cap holds for the first delay too."""
    policy = RetryPolicy(base=timedelta(minutes=5), cap=timedelta(minutes=2))
    assert policy.delay_before(1) == timedelta(minutes=2)


def test_a_factor_of_one_keeps_the_base() -> None:
    """A constant delay costs no more to compute for a late attempt than for an early one."""
    assert RetryPolicy(factor=1).delay_before(10**9) == timedelta(seconds=5)


def test_jitter_only_lengthens_and_is_replayable() -> None:
    """With a source of chance a delay grows by up to its share; equal seeds give equal delays."""
    policy = RetryPolicy(jitter=0.2)
    delays = [policy.delay_before(3, Random(seed)) for seed in range(50)]
    assert all(timedelta(seconds=20) <= delay <= timedelta(seconds=24) for delay in delays)
    assert len(set(delays)) > 1
    assert delays == [policy.delay_before(3, Random(seed)) for seed in range(50)]
    assert policy.delay_before(3) == timedelta(seconds=20)


@pytest.mark.parametrize(
    "numbers",
    [
        {"base": timedelta(0)},
        {"cap": timedelta(seconds=-1)},
        {"factor": 0.5},
        {"max_attempts": 0},
        {"fast_attempts": -1},
        {"jitter": -0.1},
    ],
)
def test_senseless_numbers_are_refused(numbers: dict[str, float]) -> None:
    """A policy that could retry in a hot loop, or never, cannot be made; the name is told."""
    with pytest.raises(ValueError, match=next(iter(numbers))):
        RetryPolicy(**numbers)  # type: ignore[arg-type]
