"""Contract of Liveness. Subclass ``LivenessContract``; see its fixtures."""

from __future__ import annotations

from datetime import timedelta

import pytest

from persys_core.ports.clock import Clock
from persys_core.ports.liveness import Liveness
from persys_core.testing.clock import Advance

__all__ = ["LivenessContract"]

TICK = timedelta(milliseconds=1)


@pytest.mark.asyncio
class LivenessContract:
    """Give it the fixtures ``clock``, ``advance``, ``lease`` and ``liveness``.

    ``lease`` is a lease that the backend can hold (a second or more on a real server);
    ``liveness`` is new, and grants ``lease`` to nodes that it never heard of.
    """

    async def test_touch_keeps_alive(
        self, liveness: Liveness, clock: Clock, advance: Advance, lease: timedelta
    ) -> None:
        """A node is alive for its lease from the last touch on, whatever came before."""
        for _ in range(4):
            ends_at = await liveness.touch("n1", lease)
            assert abs(ends_at - clock.now() - lease) < lease / 4
            await advance(lease * 0.6)
            assert liveness.is_alive("n1")
            assert liveness.expired_since("n1") is None

    async def test_silence_ends_it(
        self, liveness: Liveness, clock: Clock, advance: Advance, lease: timedelta
    ) -> None:
        """After its lease a silent node is not alive, and it is known since when."""
        ends_at = await liveness.touch("n1", lease)
        await advance(lease * 2)
        assert not liveness.is_alive("n1")
        expired_at = liveness.expired_since("n1")
        assert expired_at is not None
        assert ends_at <= expired_at <= clock.now()

    async def test_what_is_confirmed_ends_with_the_lease(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """What every observer grants is soon there after a touch, is never more than the lease, and
        is nothing once the node was silent for that long."""
        await liveness.touch("n1", lease)
        await advance(lease / 4)
        assert timedelta(0) < liveness.confirmed("n1") <= lease
        await advance(lease)
        assert liveness.confirmed("n1") == timedelta(0)

    async def test_a_touch_revives(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """A node that is heard again after its lease is alive again."""
        await liveness.touch("n1", lease)
        await advance(lease * 2)
        await liveness.touch("n1", lease)
        assert liveness.is_alive("n1")
        assert liveness.expired_since("n1") is None

    async def test_the_unknown_is_alive_at_first(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """A node that was never heard of has one full lease, and no longer (N02)."""
        await advance(lease * 0.6)
        assert liveness.is_alive("never-heard")
        assert liveness.last_seen("never-heard") is None
        await advance(lease)
        assert not liveness.is_alive("never-heard")
        assert liveness.expired_since("never-heard") is not None

    async def test_a_take_over_grants_a_full_lease(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """After grace_all no node is lost before a full lease has passed (N01, N02)."""
        await liveness.touch("n1", lease)
        await advance(lease * 2)
        liveness.grace_all(["n1", "n2"], lease)
        await advance(lease * 0.6)
        assert liveness.is_alive("n1")
        assert liveness.is_alive("n2")
        await advance(lease)
        assert not liveness.is_alive("n1")
        assert not liveness.is_alive("n2")

    async def test_grace_shortens_nothing(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """A node with more time left than the grace keeps it."""
        await liveness.touch("n1", lease * 3)
        liveness.grace_all(["n1"], lease)
        await advance(lease * 2)
        assert liveness.is_alive("n1")

    async def test_grace_is_not_a_sighting(
        self, liveness: Liveness, clock: Clock, advance: Advance, lease: timedelta
    ) -> None:
        """last_seen is when the node was heard, not when it was granted time."""
        before = clock.now()
        await liveness.touch("n1", lease)
        after = clock.now()
        await advance(TICK * 20)
        liveness.grace_all(["n1"], lease)
        seen_at = liveness.last_seen("n1")
        assert seen_at is not None
        assert before <= seen_at <= after

    async def test_nodes_are_independent(
        self, liveness: Liveness, advance: Advance, lease: timedelta
    ) -> None:
        """One node's beats keep no other node alive."""
        await liveness.touch("n1", lease)
        await liveness.touch("n2", lease)
        await advance(lease * 0.6)
        await liveness.touch("n2", lease)
        await advance(lease * 0.6)
        assert not liveness.is_alive("n1")
        assert liveness.is_alive("n2")

    async def test_forgotten_is_not_seen(self, liveness: Liveness, lease: timedelta) -> None:
        """A node that left has no last sighting; forgetting it twice is no error."""
        await liveness.touch("n1", lease)
        await liveness.forget("n1")
        await liveness.forget("n1")
        assert liveness.last_seen("n1") is None
