"""Write a test as a coroutine that runs on virtual time.

Example::

    @virtual_time()
    async def test_waits_for_the_lease(clock: VirtualClock, some_fixture: Store) -> None:
        await clock.sleep(timedelta(minutes=5))  # takes no time

The coroutine may take ``clock``; its other parameters are fixtures as usual. A test that hangs
fails at once with the list of its tasks, one with an endless background loop at ``limit``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from persys_core.sim.clock import VirtualClock
from persys_core.sim.loop import DEFAULT_START, run_virtual

__all__ = ["virtual_time"]

_CLOCK = "clock"
_DEFAULT_LIMIT = timedelta(days=7)


def virtual_time(
    *, start: datetime = DEFAULT_START, limit: timedelta = _DEFAULT_LIMIT
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Decorate a coroutine test: it runs on a new virtual loop whose clock begins at ``start``."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        wants_clock = _CLOCK in signature.parameters

        @functools.wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            def scenario(clock: VirtualClock) -> Coroutine[Any, Any, None]:
                given = {_CLOCK: clock} if wants_clock else {}
                return test(*args, **fixtures, **given)

            run_virtual(scenario, start=start, limit=limit)

        rest = [each for name, each in signature.parameters.items() if name != _CLOCK]
        run.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return run

    return decorate
