"""Standalone disks that workloads name: one record each, sent along, kept, and local ones pin."""

from attrs import evolve

from persys_core.memory.cluster_store import MemoryClusterStore
from persys_core.model.spec import ContainerSpec
from persys_core.model.volume import Volume, VolumePhase
from persys_core.ports.cluster_store import Commit, Key, Put
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from tests.builders import START, Driver, container, machine, running_cluster

SPEC = container(metadata={"persys.disk.ids": "disk-1"})


def _node(node_id: str) -> AgentSettings:
    return evolve(machine(node_id), storage_drivers=frozenset({"local", "nfs"}))


async def _create(driver: Driver, kind: str = "nfs") -> None:
    disk = Volume(
        "disk-1", "logs", kind, START, START, size_gb=1, mount_path="/data", standalone=True,
        access_mode="ReadWriteOnce", phase=VolumePhase.AVAILABLE,
    )  # fmt: skip
    store = MemoryClusterStore(driver.cluster.backend)
    await store.commit(Commit((), (Put(Key.volume("disk-1"), disk),), "operator"))
    await driver.wait(seconds=1)


def _disk(driver: Driver) -> Volume:
    stored = driver.cluster.backend.read(Key.volume("disk-1"))
    assert stored is not None
    assert isinstance(stored.value, Volume)
    return stored.value


@virtual_time()
async def test_a_disk_is_attached_under_its_own_id(clock: VirtualClock) -> None:
    """J3: it joins what the agent is sent, never the stored spec, and outlives its workload."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _create(driver)
        await driver.apply("w", SPEC)
        await driver.wait(seconds=20)
        disk = _disk(driver)
        assert (disk.phase, disk.workload_refs) == ("Attached", ("w",))
        assert disk.claim is not None
        assert driver.cluster.machines.model("n1").volumes(clock.now()) == {"nfs:logs"}
        body = (await driver.view("w")).workload.spec.body
        assert isinstance(body, ContainerSpec)
        assert not body.managed_volumes
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        assert (_disk(driver).phase, _disk(driver).workload_refs) == ("Available", ())
        assert driver.cluster.machines.model("n1").volumes(clock.now()) == {"nfs:logs"}


@virtual_time()
async def test_a_disk_that_nobody_created_is_waited_for(clock: VirtualClock) -> None:
    """The reason names it, and its creation is enough."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", SPEC)
        await driver.wait(seconds=20)
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert (reason.code, "disk-1 is not known" in reason.message) == ("volume_missing", True)
        await _create(driver)
        await driver.wait(minutes=1)
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_a_local_disk_pins_who_names_it(clock: VirtualClock) -> None:
    """It is where it was first attached; another workload that names it goes there or waits."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _create(driver, "local")
        await driver.apply("w", SPEC)
        await driver.wait(seconds=20)
        assert _disk(driver).node_id == "n1"
        driver.cluster.add_machine(_node("n2"))
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=10)
        await driver.apply("x", SPEC)
        await driver.wait(seconds=20)
        reason = (await driver.view("x")).status.reason
        assert reason is not None
        assert "local volume data is on n1 (NotReady)" in reason.message
        driver.cluster.machines.revive("n1")
        await driver.wait(minutes=1)
        assert (await driver.status("x"), await driver.node_of("x")) == ("Running", "n1")
