"""How far back the leader lets the store forget."""

from datetime import timedelta

from persys_core.control.compaction import Compaction
from persys_core.control.config import SchedulerConfig
from persys_core.control.view import ClusterView
from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.ports.cluster_store import StoreUnavailableError
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import machine, running_cluster


class NotingStore(MemoryClusterStore):
    """Notes up to where it was compacted."""

    def __init__(self) -> None:
        super().__init__()
        self.compacted: list[int] = []
        self.is_off = False

    async def compact(self, before: int) -> None:
        self.compacted.append(before)
        if self.is_off:
            raise StoreUnavailableError("connection refused")


@virtual_time()
async def test_what_is_older_than_a_pass_is_forgotten(clock: VirtualClock) -> None:
    """A pass compacts to where the view stood one pass ago; the first one forgets nothing."""
    store, view = NotingStore(), ClusterView()
    compaction = Compaction(store, view)
    for view.revision in (7, 20, 21):
        await compaction.run()
    assert store.compacted == [7, 20]


@virtual_time()
async def test_a_store_that_went_back_is_not_compacted_beyond_its_end(clock: VirtualClock) -> None:
    """A restored store counts lower than what was noted."""
    store, view = NotingStore(), ClusterView()
    compaction = Compaction(store, view)
    for view.revision in (20, 5, 6):
        await compaction.run()
    assert store.compacted == [5]


@virtual_time()
async def test_a_store_that_is_away_is_met_again(clock: VirtualClock) -> None:
    """Upkeep fails quietly: the next pass forgets more."""
    store, view = NotingStore(), ClusterView()
    compaction = Compaction(store, view)
    store.is_off = True
    for view.revision in (7, 20):
        await compaction.run()
    store.is_off = False
    await compaction.run()
    assert store.compacted == [7, 20]


@virtual_time()
async def test_the_leader_does_it_and_zero_means_never(clock: VirtualClock) -> None:
    """SCHEDULER_ETCD_COMPACT_INTERVAL is how often the loop of the leader runs."""
    async with running_cluster(clock, machine("n1")) as driver:
        assert "compaction" in driver.cluster.api().loops
    never = SchedulerConfig(compact_interval=timedelta(0))
    async with running_cluster(clock, machine("n1"), config=never) as driver:
        assert "compaction" not in driver.cluster.api().loops
