"""In a simulated cluster the database ends leases by itself, whatever cuts a replica off."""

import random
from datetime import UTC, datetime, timedelta

from persys_core.model.replica import ReplicaRecord
from persys_core.ports.cluster_store import ClusterStore, Key
from persys_core.sim.clock import VirtualClock
from persys_core.sim.cluster import TTL, SimulatedCluster
from persys_core.sim.store_faults import FaultyStore, StoreWeather
from persys_core.testing.virtual import virtual_time


@virtual_time()
async def test_a_cut_off_replica_vanishes(clock: VirtualClock) -> None:
    """Its record is removed when its lease has run out, though it reaches no store, and not the
    others'; when it is reached again it may register again."""
    stores: list[FaultyStore] = []

    def behind_weather(store: ClusterStore) -> ClusterStore:
        stores.append(FaultyStore(store, StoreWeather(), clock, random.Random(len(stores))))
        return stores[-1]

    cluster = SimulatedCluster(clock, wrap_store=behind_weather)
    members = [(await cluster.start_replica()).membership for _ in range(2)]
    one, two = members
    at = datetime(2026, 1, 1, tzinfo=UTC)
    held = [await each.register(ReplicaRecord(each.instance_id, at)) for each in members]
    stores[0].is_cut_off = True
    await clock.sleep(TTL + timedelta(seconds=6))
    assert cluster.backend.read(Key.replica(one.instance_id)) is None
    assert cluster.backend.read(Key.replica(two.instance_id)) is not None
    assert [each.is_valid(lead) for each, lead in zip(members, held, strict=True)] == [False, True]
    stores[0].is_cut_off = False
    again = await one.register(ReplicaRecord(one.instance_id, at))
    assert again.epoch > held[0].epoch
    await cluster.stop()
