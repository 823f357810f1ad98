"""Volumes along a workload's life: phases, attachments, claims, fences, and whose data goes."""

from datetime import timedelta

import pytest
from attrs import evolve

from persys_core.control.config import SchedulerConfig
from persys_core.control.requests import (
    DrainNode,
    Heartbeat,
    ImportFromAgents,
    NodeIntentChange,
    ReleaseVolume,
    RemoveNode,
    VolumeFilter,
)
from persys_core.memory.cluster_store import MemoryClusterBackend, MemoryClusterStore
from persys_core.model.errors import NotFoundError, RefusedError
from persys_core.model.spec import ManagedVolume, WorkloadSpec
from persys_core.model.volume import Attachment, Volume
from persys_core.modes.machine import ModeEvent
from persys_core.placement.explain import Verdict
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Commit, Delete, Key, Kind, Put
from persys_core.sim.agent_behaviour import Behaviour, FaultPlan
from persys_core.sim.agent_settings import AgentSettings
from persys_core.sim.clock import VirtualClock
from persys_core.testing.virtual import virtual_time
from persys_core.volumes.following import with_volumes
from tests.builders import Driver, container, machine, registration, running_cluster

pytestmark = pytest.mark.slow


def _node(node_id: str) -> AgentSettings:
    return evolve(machine(node_id), storage_drivers=frozenset({"local", "nfs", "ceph-rbd"}))


def _spec(
    name: str = "v",
    driver: str = "nfs",
    *,
    mode: str = "ReadWriteOnce",
    retain: str = "Delete",
    image: str = "nginx",
) -> WorkloadSpec:
    volume = ManagedVolume(
        name, driver, size_gb=1, access_mode=mode, mount_path="/v", retain_policy=retain
    )
    return container(image, volumes=(volume,))


def _volume(driver: Driver, volume_id: str = "nfs:v") -> Volume | None:
    stored = driver.cluster.backend.read(Key.volume(volume_id))
    return stored.value if stored and isinstance(stored.value, Volume) else None


def _found(driver: Driver, volume_id: str = "nfs:v") -> Volume:
    volume = _volume(driver, volume_id)
    assert volume is not None
    return volume


def _attachments(driver: Driver) -> dict[str, str]:
    """``node/workload`` to phase."""
    view = driver.cluster.api().view
    return {
        f"{each.node_id}/{each.workload_id}": each.phase.value
        for each in view.values(Kind.ATTACHMENT, Attachment)
    }


async def _running_on_n1(driver: Driver, spec: WorkloadSpec, workload_id: str = "w") -> None:
    await driver.apply(workload_id, spec)
    await driver.wait(seconds=20)
    assert await driver.node_of(workload_id) == "n1"
    assert await driver.status(workload_id) == "Running"
    driver.cluster.add_machine(_node("n2"))
    await driver.wait(seconds=5)


def _data(driver: Driver, node_id: str) -> frozenset[str]:
    return driver.cluster.machines.model(node_id).volumes(driver.clock.now())


# ---------------------------------------------------------------- phases


@virtual_time()
async def test_phases_follow_the_workload(clock: VirtualClock) -> None:
    """Pending, Provisioning, Attached, then gone with the delete that the agent confirmed."""
    async with running_cluster(clock) as driver:
        await driver.apply("w", _spec())
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Pending", ("w",))
        assert not _attachments(driver)
        driver.cluster.add_machine(_node("n1"))
        seen = set()
        for _ in range(200):
            await driver.wait(milliseconds=100)
            seen.add((_found(driver).phase.value, _attachments(driver).get("n1/w", "")))
        assert seen >= {("Provisioning", "Attaching"), ("Attached", "Attached")}
        volume = _found(driver)
        assert volume.attached_nodes == ("n1",)
        assert volume.claim is not None
        assert (volume.claim.workload_id, volume.claim.node_id) == ("w", "n1")
        await driver.cluster.api().admission.delete_workload("w", force=False)
        seen = set()
        for _ in range(200):
            await driver.wait(milliseconds=100)
            found = _volume(driver)
            seen.add((found.phase.value if found else "", _attachments(driver).get("n1/w", "")))
        assert seen >= {("Deleting", "Detaching"), ("", "")}
        assert _data(driver, "n1") == frozenset()


@virtual_time()
async def test_the_retain_policy_keeps_record_and_data(clock: VirtualClock) -> None:
    """A volume that is to be kept outlives its workload, and the next one finds it."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", _spec(retain="Retain"))
        await driver.wait(seconds=20)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        volume = _found(driver)
        assert (volume.phase, volume.workload_refs, volume.claim) == ("Retained", (), None)
        assert _data(driver, "n1") == {"nfs:v"}
        await driver.apply("w2", _spec(retain="Retain"))
        await driver.wait(seconds=20)
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Attached", ("w2",))


@virtual_time()
async def test_data_that_another_workload_uses_is_not_deleted(clock: VirtualClock) -> None:
    """Two workloads share a volume; the delete of one leaves the data of the other alone."""
    async with running_cluster(clock, _node("n1")) as driver:
        for name in ("w1", "w2"):
            await driver.apply(name, _spec(mode="ReadWriteMany"))
        await driver.wait(seconds=20)
        assert _found(driver).workload_refs == ("w1", "w2")
        assert _found(driver).claim is None
        await driver.cluster.api().admission.delete_workload("w1", force=False)
        await driver.wait(seconds=30)
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Attached", ("w2",))
        assert _data(driver, "n1") == {"nfs:v"}
        await driver.cluster.api().admission.delete_workload("w2", force=False)
        await driver.wait(seconds=30)
        assert _volume(driver) is None
        assert _data(driver, "n1") == frozenset()


@virtual_time()
async def test_a_dropped_volume_is_released_once_the_new_revision_runs(
    clock: VirtualClock,
) -> None:
    """Its data is left: only the user's delete takes data away."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", _spec())
        await driver.wait(seconds=20)
        await driver.apply("w", container("nginx:2"))
        assert _attachments(driver) == {"n1/w": "Attached"}
        await driver.wait(seconds=60)
        assert await driver.status("w") == "Running"
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Released", ())
        assert not _attachments(driver)


@virtual_time()
async def test_a_storage_failure_shows_at_the_volume(clock: VirtualClock) -> None:
    """The agent's words stand at the volume until it works again."""
    failing = Behaviour(create_error="managed storage setup failed: no space on the server")
    plan = FaultPlan(workloads={"w": failing})
    async with running_cluster(clock, _node("n1"), plan=plan) as driver:
        await driver.apply("w", _spec())
        await driver.wait(seconds=15)
        assert _found(driver).phase == "Error"
        assert "storage" in _found(driver).last_error


# ---------------------------------------------------------------- moving


@virtual_time()
async def test_a_change_of_node_is_no_release(clock: VirtualClock) -> None:
    """Detach and attach: the record stays, the claim passes when the old node confirmed (A2)."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        await driver.cluster.api().nodes.drain(DrainNode(NodeIntentChange("n1", "disk")))
        seen: list[str] = []
        for _ in range(600):
            await driver.wait(milliseconds=100)
            attached = sum(p in ("Attaching", "Attached") for p in _attachments(driver).values())
            assert attached <= 1
            claim = _found(driver).claim
            assert claim is not None
            if not seen or seen[-1] != claim.node_id:
                seen.append(claim.node_id)
        assert seen == ["n1", "n2"]
        assert (_found(driver).phase, _found(driver).attached_nodes) == ("Attached", ("n2",))
        assert await driver.status("w") == "Running"


@virtual_time()
async def test_silence_is_no_fence(clock: VirtualClock) -> None:
    """S02: it waits and says for whom; a fence lets it go; who returns is told to stop."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        view = await driver.view("w")
        assert view.status.status == "Pending"
        assert view.status.reason is not None
        assert view.status.reason.code == "volume_held"
        assert "volume nfs:v held by n1 since" in view.status.reason.message
        assert view.status.reason.message.endswith("not fenced")
        assert driver.calls("apply", "w", "n2") == 0
        explanation = await driver.cluster.api().queries.explain("w")
        assert explanation.verdict is Verdict.PINNED
        assert "fence" in explanation.next_step
        assert len(await driver.events("RescheduleSkipped", "w")) == 1
        fenced = await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off", "ann"))
        assert fenced.volume_ids == ("nfs:v",)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert driver.calls("apply", "w", "n2") == 1
        assert _found(driver).attached_nodes == ("n2",)
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        assert driver.calls("delete", "w", "n1") == 1
        assert driver.calls("apply", "w") == 2
        assert _attachments(driver) == {"n2/w": "Attached"}
        node, _ = await driver.cluster.api().queries.get_node("n1")
        assert node.node.fence is None
        assert await driver.events("NodeFenceEnded")


@virtual_time()
async def test_a_beat_in_the_same_moment_wins_over_the_fence(clock: VirtualClock) -> None:
    """Whoever passes the claim on compares the node's record, which the end of the fence writes."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n2"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        view = driver.cluster.api().view
        workload, held = view.workload("w"), view.assignment("w")
        assert workload is not None
        assert held is not None
        moved = evolve(held.value, node_id="n2")
        tx = Transaction().put(Key.assignment("w"), moved, held)
        compared = {each.key for each in with_volumes(tx, view, clock.now()).expects}
        assert Key.node("n1") in compared


@virtual_time()
async def test_a_node_that_returns_unfenced_goes_on(clock: VirtualClock) -> None:
    """Nothing was started elsewhere, so nothing is stopped."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n1")
        assert (driver.calls("apply", "w"), driver.calls("delete", "w")) == (1, 0)


@virtual_time()
async def test_an_old_fence_says_nothing_of_a_later_silence(clock: VirtualClock) -> None:
    """The node was heard in between, so it must be fenced anew."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n2"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().nodes.uncordon(NodeIntentChange("n2"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        assert driver.calls("apply", "w", "n2") == 0
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.code == "volume_held"


@virtual_time()
async def test_a_registration_ends_a_fence_and_says_so(clock: VirtualClock) -> None:
    """A machine that was off registers before it beats: the end of the fence is told, once."""
    async with running_cluster(clock, _node("n1")) as driver:
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        request = driver.cluster.machines.model("n1").registration()
        for _ in range(2):
            assert (await driver.cluster.api().admission.register_node(request)).accepted
            await driver.wait(seconds=1)
            node, _ = await driver.cluster.api().queries.get_node("n1")
            assert node.node.fence is None
            [event] = await driver.events("NodeFenceEnded")
            assert event.node_id == "n1"


@virtual_time()
async def test_a_release_stands_through_a_freeze(clock: VirtualClock) -> None:
    """A beat that cannot end the release of a volume is no sign of life either."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        api = driver.cluster.api()
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        # Nobody else takes the volume, which would end the claim.
        await api.nodes.cordon(NodeIntentChange("n2"))
        await api.volumes.release(ReleaseVolume("nfs:v", "off", force=True))
        api.modes.report(ModeEvent.OPERATION_EXHAUSTED, "the disk is full")
        assert (await api.admission.heartbeat(Heartbeat("n1"))).known
        assert not driver.cluster.liveness.is_alive("n1")
        assert api.view.released_from("n1") == {"nfs:v"}
        await driver.wait(minutes=1)
        await api.admission.heartbeat(Heartbeat("n1"))
        assert driver.cluster.liveness.is_alive("n1")
        assert not api.view.released_from("n1")


@virtual_time()
async def test_a_node_that_beats_cannot_be_fenced(clock: VirtualClock) -> None:
    """A fence is the word that nothing there can write, and a beat disproves it."""
    async with running_cluster(clock, _node("n1")) as driver:
        with pytest.raises(RefusedError, match="still beats"):
            await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        with pytest.raises(NotFoundError):
            await driver.cluster.api().volumes.fence(NodeIntentChange("nope", "off"))


@pytest.mark.slow
@virtual_time()
async def test_the_holder_that_was_moved_and_died_keeps_the_volume(clock: VirtualClock) -> None:
    """The node dies in the middle of a drain: the new copy waits until it is fenced."""
    async with running_cluster(clock, evolve(_node("n1"))) as driver:
        await _running_on_n1(driver, _spec())
        await driver.cluster.api().nodes.drain(DrainNode(NodeIntentChange("n1", "disk")))
        while await driver.node_of("w") == "n1":
            await driver.wait(milliseconds=50)
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=5)
        assert driver.calls("apply", "w", "n2") == 0
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert "held by n1" in reason.message
        await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        await driver.wait(minutes=1)
        assert (await driver.status("w"), driver.calls("apply", "w", "n2")) == ("Running", 1)


@virtual_time()
async def test_another_workload_waits_for_an_exclusive_volume(clock: VirtualClock) -> None:
    """It says who holds it, and goes on when the holder is deleted."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec(retain="Retain"))
        await driver.apply("other", _spec(retain="Retain"))
        await driver.wait(seconds=20)
        view = await driver.view("other")
        assert (view.status.status, view.assignment) == ("Pending", None)
        assert view.status.reason is not None
        assert "held by workload w on n1" in view.status.reason.message
        explanation = await driver.cluster.api().queries.explain("other")
        assert "held by workload w on n1" in explanation.summary
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=30)
        assert await driver.status("other") == "Running"


@virtual_time()
async def test_what_is_being_deleted_is_not_built_upon(clock: VirtualClock) -> None:
    """A new workload waits for the end of a deletion that would take its data with it."""
    config = SchedulerConfig()
    async with running_cluster(clock, _node("n1"), config=config) as driver:
        await _running_on_n1(driver, _spec(mode="ReadWriteMany"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=5)
        await driver.apply("other", _spec(mode="ReadWriteMany"))
        await driver.wait(seconds=10)
        assert await driver.status("other") == "Running", "the delete is not told yet: data is kept"
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        assert driver.calls("delete", "w", "n1") == 1
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Attached", ("other",))
        assert _data(driver, "n1") == {"nfs:v"}


# ---------------------------------------------------------------- the end of holders


@virtual_time()
async def test_the_end_of_the_holders_record_frees_the_claim(clock: VirtualClock) -> None:
    """S02: who deletes the silent holder by force answers for it, and the volume is free."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=5)
        await driver.apply("other", _spec())
        await driver.wait(minutes=1)
        assert await driver.status("other") == "Pending"
        await driver.cluster.api().admission.delete_workload("w", force=True)
        await driver.wait(seconds=30)
        assert (await driver.status("other"), await driver.node_of("other")) == ("Running", "n2")


@virtual_time()
async def test_a_removed_node_holds_nothing(clock: VirtualClock) -> None:
    """RemoveNode by force is the operator's word, too."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().nodes.remove(RemoveNode(NodeIntentChange("n1"), force=True))
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        assert _attachments(driver) == {"n2/w": "Attached"}


@virtual_time()
async def test_an_unconfirmed_delete_leaves_a_released_record(clock: VirtualClock) -> None:
    """Whether its data is gone is not known, and the record says so until it is given up."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().admission.delete_workload("w", force=True)
        await driver.wait(seconds=5)
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Released", ())
        answer = await driver.cluster.api().volumes.release(ReleaseVolume("nfs:v"))
        assert (answer.accepted, answer.removed) == (True, True)
        assert _volume(driver) is None
        with pytest.raises(NotFoundError):
            await driver.cluster.api().volumes.release(ReleaseVolume("nfs:v"))


@virtual_time()
async def test_a_volume_in_use_is_released_only_by_force(clock: VirtualClock) -> None:
    """The refusals change nothing; by force a silent node's hold ends and the workload moves."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        volumes = driver.cluster.api().volumes
        answer = await volumes.release(ReleaseVolume("nfs:v"))
        assert (answer.accepted, answer.view.held_reason.startswith("held by")) == (False, True)
        with pytest.raises(RefusedError, match="which beats, so it is in use"):
            await volumes.release(ReleaseVolume("nfs:v", "so I say", force=True))
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=10)
        assert await driver.status("w") == "Pending"
        answer = await volumes.release(ReleaseVolume("nfs:v", "it burnt down", force=True))
        assert (answer.accepted, answer.removed, answer.holder) == (True, False, "n1")
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")


@virtual_time()
async def test_a_release_is_over_when_its_holders_node_is_heard(clock: VirtualClock) -> None:
    """Like a fence: a later silence of the node needs a word of its own."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        volumes = driver.cluster.api().volumes
        await volumes.release(ReleaseVolume("nfs:v", "off", force=True))
        claim = _found(driver).claim
        assert claim is not None
        assert claim.released_at is not None
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        claim = _found(driver).claim
        assert claim is not None
        assert (claim.node_id, claim.released_at) == ("n1", None)
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=10)
        assert driver.calls("apply", "w", "n2") == 0


@virtual_time()
async def test_a_fence_frees_what_a_deleted_holder_held(clock: VirtualClock) -> None:
    """Whoever waited for it goes on, and the old node still owes its delete."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec(retain="Retain"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.apply("other", _spec(retain="Retain"))
        await driver.wait(minutes=5)
        assert await driver.status("other") == "Pending"
        await driver.cluster.api().volumes.fence(NodeIntentChange("n1", "off"))
        await driver.wait(minutes=1)
        assert (await driver.status("other"), await driver.node_of("other")) == ("Running", "n2")
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        assert driver.calls("delete", "w", "n1") == 1


@virtual_time()
async def test_a_release_frees_what_a_deleted_holder_held(clock: VirtualClock) -> None:
    """The word outlasts the claim: the waiter that took it need not wait for the old hold."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec(retain="Retain"))
        driver.cluster.machines.pause("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.apply("other", _spec(retain="Retain"))
        await driver.wait(minutes=1)
        await driver.cluster.api().volumes.release(ReleaseVolume("nfs:v", "off", force=True))
        await driver.wait(minutes=1)
        assert (await driver.status("other"), await driver.node_of("other")) == ("Running", "n2")
        driver.cluster.machines.resume("n1")
        await driver.wait(minutes=1)
        assert driver.calls("delete", "w", "n1") == 1
        assert _attachments(driver) == {"n2/other": "Attached"}


@virtual_time()
async def test_imported_work_may_hold_any_exclusive_volume(clock: VirtualClock) -> None:
    """Its volumes are not known before its spec is, so nobody else gets one that it may hold."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        await driver.cluster.stop_replica(driver.cluster.replicas[-1])
        driver.cluster.backend.restore(MemoryClusterBackend().snapshot())
        await driver.cluster.start_replica()
        await driver.wait(minutes=1)
        await driver.cluster.api().recovery.import_from_agents(ImportFromAgents((), False, "lost"))
        await driver.wait(minutes=1)
        await driver.apply("other", _spec())
        await driver.apply("plain", container(cpu=100))
        await driver.wait(minutes=1)
        reason = (await driver.view("other")).status.reason
        assert reason is not None
        assert "imported workloads whose volumes are not known (w)" in reason.message
        assert await driver.status("plain") == "Running"
        before = driver.calls("apply", "w")
        await driver.apply("w", _spec())
        await driver.wait(seconds=5)
        assert (await driver.status("w"), driver.calls("apply", "w")) == ("Running", before)
        reason = (await driver.view("other")).status.reason
        assert reason is not None
        assert "held by workload w on n1" in reason.message


@virtual_time()
async def test_a_registration_ends_a_release(clock: VirtualClock) -> None:
    """A machine that was switched off and on presents itself before it beats."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=1)
        await driver.cluster.api().volumes.release(ReleaseVolume("nfs:v", "off", force=True))
        await driver.cluster.api().admission.register_node(registration("n1"))
        claim = _found(driver).claim
        assert claim is not None
        assert claim.released_at is None


# ---------------------------------------------------------------- local data


@virtual_time()
async def test_local_data_is_given_up_only_when_said_so(clock: VirtualClock) -> None:
    """S03: pinned with its reason, no apply; discarding the data starts it elsewhere."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec(driver="local"))
        admission = driver.cluster.api().admission
        with pytest.raises(RefusedError, match="in service"):
            await admission.retry_workload("w", discard_local=True)
        driver.cluster.machines.kill("n1")
        await driver.wait(minutes=10)
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert reason.message.startswith("local volume data is on n1 (NotReady)")
        assert driver.calls("apply", "w", "n2") == 0
        await admission.retry_workload("w", discard_local=True)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")
        with pytest.raises(RefusedError, match="in service"):
            await admission.retry_workload("w", discard_local=True)


@virtual_time()
async def test_a_delete_before_the_binding_clears_the_pin(clock: VirtualClock) -> None:
    """S03: deleted during its placement and made anew, it may go anywhere."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", _spec(driver="local"))
        await driver.cluster.api().admission.delete_workload("w", force=False)
        await driver.wait(seconds=10)
        await driver.cluster.api().nodes.cordon(NodeIntentChange("n1"))
        driver.cluster.add_machine(_node("n2"))
        await driver.wait(seconds=5)
        await driver.apply("w", _spec(driver="local"))
        await driver.wait(seconds=20)
        assert (await driver.status("w"), await driver.node_of("w")) == ("Running", "n2")


@virtual_time()
async def test_volumes_are_listed(clock: VirtualClock) -> None:
    """All of them, or those of a node, a workload or a phase."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec())
        await driver.apply("x", _spec("big", mode="ReadWriteMany"))
        await driver.wait(seconds=20)

        async def ids(**wanted: str) -> list[str]:
            views, _ = await driver.cluster.api().volumes.list_volumes(VolumeFilter(**wanted))
            return [view.volume.id for view in views]

        assert await ids() == ["nfs:big", "nfs:v"]
        assert await ids(workload_id="w") == ["nfs:v"]
        assert await ids(node_id="n1", phase="attached") == ["nfs:v"]
        assert await ids(phase="released") == []


@pytest.mark.slow
@virtual_time()
async def test_a_steady_volume_costs_no_write(clock: VirtualClock) -> None:
    """Nothing is written for its own sake."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", _spec())
        await driver.wait(minutes=2)
        before = driver.cluster.backend.revision
        await driver.wait(seconds=timedelta(minutes=30).total_seconds())
        assert driver.cluster.backend.revision == before


@virtual_time()
async def test_records_of_another_scheduler_are_brought_into_step(clock: VirtualClock) -> None:
    """Volumes that nobody recorded, or that name who is gone, are put right by the next audit."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("w", _spec())
        await driver.wait(seconds=20)
        right = _found(driver)
        stale = Volume(
            "nfs:old", "old", "nfs", right.created_at, right.updated_at, workload_refs=("gone",)
        )
        store = MemoryClusterStore(driver.cluster.backend)
        writes = (
            Delete(Key.volume("nfs:v")),
            Delete(Key.attachment("n1", "w", "nfs:v")),
            Put(Key.volume("nfs:old"), stale),
        )
        await store.commit(Commit((), writes, "foreign"))
        await driver.wait(minutes=2)
        assert (_found(driver).phase, _found(driver).workload_refs) == ("Attached", ("w",))
        assert _attachments(driver) == {"n1/w": "Attached"}
        assert _volume(driver, "nfs:old") is None


@virtual_time()
async def test_a_new_revision_waits_for_the_volume_that_it_adds(clock: VirtualClock) -> None:
    """The old revision goes on meanwhile, and says nothing wrong."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("holder", _spec())
        await driver.apply("w", container())
        await driver.wait(seconds=20)
        await driver.apply("w", _spec())
        await driver.wait(minutes=1)
        reason = (await driver.view("w")).status.reason
        assert reason is not None
        assert "held by workload holder" in reason.message
        assert driver.calls("apply", "w") == 1
        await driver.cluster.api().admission.delete_workload("holder", force=False)
        await driver.wait(minutes=1)
        assert (await driver.status("w"), driver.calls("apply", "w")) == ("Running", 2)


@pytest.mark.slow
@virtual_time()
async def test_what_was_given_up_holds_nothing_of_a_revision_that_was_never_sent(
    clock: VirtualClock,
) -> None:
    """Its node was sent an older revision: the volume that the update adds is attached nowhere for
    it, and remains another one's (simulator, seed 30084)."""
    async with running_cluster(clock, _node("n1")) as driver:
        await _running_on_n1(driver, _spec("a"), "holder")
        await driver.apply("w", _spec("b", image="missing:1"))
        await driver.wait(minutes=10)
        assert await driver.status("w") == "Failed"
        await driver.apply("w", _spec("a", image="missing:2"))
        await driver.wait(minutes=1)
        assert await driver.status("w") == "Pending"
        assert _found(driver, "nfs:a").attached_nodes == ("n1",)
        held = {
            each.workload_id
            for each in driver.cluster.api().view.values(Kind.ATTACHMENT, Attachment)
            if each.volume_id == "nfs:a"
        }
        assert held == {"holder"}


@virtual_time()
async def test_who_writes_alone_bears_no_other_writer(clock: VirtualClock) -> None:
    """Whichever access mode the second workload asks for, it waits for the first."""
    async with running_cluster(clock, _node("n1")) as driver:
        await driver.apply("alone", _spec("a"))
        await driver.apply("shared", _spec("b", mode="ReadWriteMany"))
        await driver.wait(seconds=20)
        await driver.apply("x", _spec("a", mode="ReadWriteMany"))
        await driver.apply("y", _spec("b"))
        await driver.wait(seconds=30)
        for name, other in (("x", "alone"), ("y", "shared")):
            view = await driver.view(name)
            assert view.status.status == "Pending"
            assert view.status.reason is not None
            assert view.status.reason.code == "volume_held"
            assert f"workload {other} on n1" in view.status.reason.message
            await driver.cluster.api().admission.delete_workload(other, force=False)
        await driver.wait(minutes=1)
        assert await driver.status("x") == await driver.status("y") == "Running"


@virtual_time()
async def test_a_shared_volume_becomes_exclusive_for_nobody(clock: VirtualClock) -> None:
    """Two workloads share a volume on two nodes: neither can make it its own while the other has
    it, and is told who that is; alone it can."""
    async with running_cluster(clock, _node("n1"), _node("n2")) as driver:
        for name in ("a", "b"):
            await driver.apply(name, _spec(mode="ReadWriteMany"))
        await driver.wait(seconds=30)
        assert {await driver.node_of(name) for name in ("a", "b")} == {"n1", "n2"}
        where = await driver.node_of("b")
        with pytest.raises(RefusedError, match=f"shared by b on {where}"):
            await driver.apply("a", _spec(mode="ReadWriteOnce"))
        await driver.wait(seconds=30)
        assert [await driver.status(name) for name in ("a", "b")] == ["Running", "Running"]
        await driver.cluster.api().admission.delete_workload("b", force=False)
        await driver.wait(seconds=30)
        await driver.apply("a", _spec(mode="ReadWriteOnce"))
        await driver.wait(minutes=1)
        assert await driver.status("a") == "Running"
