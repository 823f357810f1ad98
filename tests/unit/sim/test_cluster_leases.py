"""In a simulated cluster the database ends leases by itself, whatever cuts a replica off."""

import random
from datetime import timedelta

from persys_core.ports.cluster_store import ClusterStore, Key
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import TTL, SimulatedCluster
from persys_core.sim.store_faults import FaultyStore, StoreWeather
from persys_core.testing.virtual import virtual_time


@virtual_time()
async def test_a_cut_off_replica_vanishes(clock: VirtualClock) -> None:
    """Its record is removed when its lease has run out, though it reaches no store, and not the
    others'; when it is reached again it registers again."""
    stores: list[FaultyStore] = []

    def behind_weather(store: ClusterStore) -> ClusterStore:
        stores.append(FaultyStore(store, StoreWeather(), clock, random.Random(len(stores))))
        return stores[-1]

    cluster = SimulatedCluster(clock, wrap_store=behind_weather)
    one, two = [await cluster.start_replica() for _ in range(2)]
    keys = [Key.replica(each.scheduler.instance_id) for each in (one, two)]
    held = cluster.backend.read(keys[0])
    assert held is not None
    stores[0].is_cut_off = True
    await clock.sleep(TTL + timedelta(seconds=6))
    assert cluster.backend.read(keys[0]) is None
    assert cluster.backend.read(keys[1]) is not None
    stores[0].is_cut_off = False
    await clock.sleep(timedelta(seconds=2))
    again = cluster.backend.read(keys[0])
    assert again is not None
    assert again.create_revision > held.create_revision
    await cluster.stop()
