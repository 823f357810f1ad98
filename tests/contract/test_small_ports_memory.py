"""The small in-memory ports, and the clocks, keep their contracts."""

import asyncio
from datetime import timedelta

import pytest

from persys_adapters.system_clock import SystemClock
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.memory.elections import ElectionHub
from persys_core.memory.event_log import MemoryEventLog
from persys_core.memory.liveness import MemoryLiveness
from persys_core.memory.membership import MemoryMembership
from persys_core.memory.telemetry import MemoryTelemetry
from persys_core.ports.clock import Clock
from persys_core.ports.cluster_store import ClusterStore
from persys_core.ports.events import EventLog
from persys_core.ports.liveness import Liveness
from persys_core.ports.membership import Membership
from persys_core.ports.telemetry import Telemetry
from persys_core.testing.clock import Advance, ClockContract
from persys_core.testing.event_log import EventLogContract, Flush
from persys_core.testing.liveness import LivenessContract
from persys_core.testing.manual_clock import ManualClock, settle
from persys_core.testing.membership import MembershipCluster, MembershipContract
from persys_core.testing.telemetry import TelemetryContract


class TestManualClock(ClockContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Advance:
        return clock.advance


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()

    @pytest.fixture
    def advance(self) -> Advance:
        async def wait(duration: timedelta) -> None:
            await asyncio.sleep(duration.total_seconds())

        return wait


class TestMemoryLiveness(LivenessContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Advance:
        return clock.advance

    @pytest.fixture
    def lease(self) -> timedelta:
        return timedelta(seconds=30)

    @pytest.fixture
    def liveness(self, clock: ManualClock, lease: timedelta) -> Liveness:
        return MemoryLiveness(clock, lease)


class TestMemoryTelemetry(TelemetryContract):
    @pytest.fixture
    def telemetry(self) -> Telemetry:
        return MemoryTelemetry()


class TestMemoryEventLog(EventLogContract):
    @pytest.fixture
    def capacity(self) -> int:
        return 10

    @pytest.fixture
    def log(self, capacity: int) -> EventLog:
        return MemoryEventLog(capacity)

    @pytest.fixture
    def flush(self) -> Flush:
        return settle


class MemoryCluster(MembershipCluster):
    ttl = timedelta(seconds=15)

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.hub = ElectionHub()
        self._store = MemoryClusterStore()
        self.replicas: list[MemoryMembership] = []

    @property
    def store(self) -> ClusterStore:
        return self._store

    async def join(self, instance_id: str) -> Membership:
        self.replicas.append(
            MemoryMembership(self.hub, self._store, self.clock, instance_id, self.ttl)
        )
        return self.replicas[-1]

    async def stall(self, membership: Membership) -> None:
        self._own(membership).stall()

    async def resume(self, membership: Membership) -> None:
        self._own(membership).resume()

    async def advance(self, duration: timedelta) -> None:
        await self.clock.advance(duration)

    async def close(self) -> None:
        for replica in self.replicas:
            replica.close()
        self.hub.close()
        await settle()

    def _own(self, membership: Membership) -> MemoryMembership:
        return next(replica for replica in self.replicas if replica is membership)


class TestMemoryMembership(MembershipContract):
    @pytest.fixture
    def cluster(self) -> MembershipCluster:
        return MemoryCluster()
