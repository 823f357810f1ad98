"""How long to wait before each retry: plain arithmetic, no state.

Decided here: the delays and the limits (decisions, values: retry). Not decided here: what counts
as an attempt (``machine``) and what kind a failure is (``failure``).

With the defaults::

    retry             1    2    3    4    5    6    7 …
    wait before it    5 s 10 s 20 s 40 s 80 s  2 m  2 m …

With ``fast_attempts=2`` the first two retries come at once and the row starts at the third.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from attrs import field, frozen
from attrs.validators import ge, gt

__all__ = ["RetryPolicy"]

_ZERO = timedelta(0)


@frozen
class RetryPolicy:
    """The numbers of the retry budget.

    ``base``, ``factor``, ``cap``: the delays, see the module. ``max_attempts``: failures of the
    workload's own before it is given up. ``failure_grace``: for this long after the first failure
    it is not given up. ``stable_after``: having run as wished for this long, the budget is new.
    ``jitter``: each delay is lengthened by up to this share of itself, where a source of chance
    is given; a delay is never shortened. Raises ValueError on numbers that make no sense.
    """

    base: timedelta = field(default=timedelta(seconds=5), validator=gt(_ZERO))
    factor: float = field(default=2.0, validator=ge(1))
    cap: timedelta = field(default=timedelta(minutes=2), validator=gt(_ZERO))
    max_attempts: int = field(default=5, validator=ge(1))
    failure_grace: timedelta = timedelta(minutes=2)
    stable_after: timedelta = timedelta(minutes=10)
    fast_attempts: int = field(default=0, validator=ge(0))
    jitter: float = field(default=0.0, validator=ge(0))

    def delay_before(self, attempt: int, rng: Random | None = None) -> timedelta:
        """The wait before retry number ``attempt`` (1 = the first one, after the first failure).

        Never above ``cap`` (times 1 + ``jitter`` with ``rng``), however large ``attempt`` is.
        """
        if attempt <= self.fast_attempts:
            return _ZERO
        delay = self._growing(attempt - self.fast_attempts - 1)
        return delay if rng is None else delay * (1 + self.jitter * rng.random())

    def infrastructure_delay(self, failures: int, rng: Random | None = None) -> timedelta:
        """The wait after the ``failures``-th infrastructure failure in a row, without an end.

        The same row of delays; there are no fast ones, since an outage gains nothing by haste.
        """
        return self.delay_before(max(failures, 1) + self.fast_attempts, rng)

    def _growing(self, steps: int) -> timedelta:
        delay = self.base
        for _ in range(steps):
            # Stopping at the cap keeps the power from overflowing in an endless outage.
            if delay >= self.cap or self.factor == 1:
                break
            delay *= self.factor
        return min(delay, self.cap)
