"""The judge of volumes: who writes where, on the machines and in the store."""

from __future__ import annotations

from attrs import evolve

from persys_core.model.node import Fence
from persys_core.model.spec import ManagedVolume, WorkloadSpec, spec_revision
from persys_core.model.states import DesiredState
from persys_core.model.volume import Attachment, Volume, VolumeClaim
from persys_core.model.workload import Workload
from persys_core.ports.cluster_store import Key
from persys_core.sim.clock import VirtualClock
from persys_core.sim.invariants_volumes import attachments, one_writer, volumes_in_step
from persys_core.testing.virtual import virtual_time
from tests.builders import START, container, make_node
from tests.unit.sim.test_judges import Court, texts


def _spec(mode: str = "ReadWriteOnce") -> WorkloadSpec:
    return container(volumes=(ManagedVolume("v", "nfs", access_mode=mode, mount_path="/v"),))


def _run(court: Court, workload_id: str, spec: WorkloadSpec, *nodes: str) -> None:
    """Its record, and what really runs of it."""
    workload = Workload(
        workload_id, "u", spec, spec_revision(spec), DesiredState.RUNNING, START, START
    )
    court.put((Key.workload(workload_id), workload))
    for node in nodes:
        if court.scene.mirror.node(node) is None:
            court.open_node(node)
        court.scene.running.setdefault(node, {})[workload_id] = workload.revision_id


@virtual_time()
async def test_a_second_writer_is_found_wherever_it_comes_from(clock: VirtualClock) -> None:
    """Of the same workload or another one; readers of other volumes do not matter."""
    court = Court(clock)
    _run(court, "w", _spec(), "n1")
    _run(court, "plain", container(), "n1", "n2")
    assert not texts(one_writer(court.scene, "n1", "w"))
    _run(court, "w", _spec(), "n2")
    (found,) = texts(one_writer(court.scene, "n2", "w"))
    assert "nfs:v is written to by w on n1, w on n2" in found
    court.scene.running["n2"].pop("w")
    _run(court, "x", _spec(), "n2")
    assert len(texts(one_writer(court.scene, "n2", "x"))) == 1


@virtual_time()
async def test_shared_volumes_may_have_many_writers(clock: VirtualClock) -> None:
    """That is what they are for."""
    court = Court(clock)
    _run(court, "w", _spec("ReadWriteMany"), "n1", "n2")
    assert not texts(one_writer(court.scene, "n2", "w"))


@virtual_time()
async def test_a_fenced_node_does_not_write(clock: VirtualClock) -> None:
    """The operator answers for it; so does who forced a deletion."""
    court = Court(clock)
    _run(court, "w", _spec(), "n1", "n2")
    court.put((Key.node("n1"), evolve(make_node("n1"), fence=Fence(START, "off"))))
    assert not texts(one_writer(court.scene, "n2", "w"))
    court.put((Key.node("n1"), make_node("n1")))
    assert texts(one_writer(court.scene, "n2", "w"))
    court.scene.wishes.force("w")
    assert not texts(one_writer(court.scene, "n2", "w"))


@virtual_time()
async def test_two_attachments_of_a_claimed_volume_are_found(clock: VirtualClock) -> None:
    """In the store, before anything was started."""
    court = Court(clock)
    claim = VolumeClaim("w", "n1", START)
    court.put((Key.volume("nfs:v"), Volume("nfs:v", "v", "nfs", START, START, claim=claim)))
    found = []
    for node in ("n1", "n2"):
        hold = Attachment("nfs:v", "w", node, START, START, START)
        step = court.put((Key.attachment(node, "w", "nfs:v"), hold))
        found.append(texts(attachments(court.scene, step)))
    assert found == [[], ["nfs:v is attached on n1, n2 at once"]]


@virtual_time()
async def test_a_record_that_does_not_follow_is_found(clock: VirtualClock) -> None:
    """A workload without the records of its volumes, and a volume that names who is gone."""
    court = Court(clock)
    _run(court, "w", _spec())
    assert texts(volumes_in_step(court.scene)) == ["volume/nfs:v is not what follows from w"]
    stale = Volume("nfs:old", "old", "nfs", START, START, workload_refs=("gone",))
    court.put((Key.volume("nfs:old"), stale))
    assert "volume/nfs:old is not what follows from gone" in texts(volumes_in_step(court.scene))
