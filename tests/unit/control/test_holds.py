"""Where a workload holds its volumes, and whose data a delete takes: the rules by themselves."""

from attrs import evolve

from persys_core.control.view import ClusterView
from persys_core.model.resources import Resources
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.volume import RetainPolicy, Volume
from persys_core.model.workload import Assignment, ReapplyState, StatusRecord, Workload
from persys_core.placement.ledger import Transaction
from persys_core.ports.cluster_store import Key
from persys_core.volumes.holds import holds_after, removes_data
from persys_core.volumes.outcome import Outcome
from tests.builders import START, container


def _workload(workload_id: str = "w", driver: str = "nfs") -> Workload:
    spec = container(volumes=(ManagedVolume("v", driver, size_gb=1, mount_path="/v"),))
    return Workload(workload_id, "u1", spec, "r1", DesiredState.RUNNING, START, START)


def _volume(driver: str = "nfs", *users: str) -> Volume:
    return Volume(f"{driver}:v", "v", driver, START, START, workload_refs=users)


def _outcome(
    workload: Workload, volume: Volume, sent: ReapplyState, node_id: str = "n1"
) -> Outcome:
    status = StatusRecord(workload.id, "u1", WorkloadStatus.COMPLETED, START, reapply=sent)
    tx = (
        Transaction()
        .put(Key.workload(workload.id), workload, None)
        .put(Key.status(workload.id), status, None)
        .put(Key.volume(volume.id), volume, None)
        .put(Key.assignment(workload.id), _assigned(workload.id, node_id), None)
        .put(Key.assignment("holder"), _assigned("holder", "n2"), None)
    )
    return Outcome(ClusterView(), tx)


def _assigned(workload_id: str, node_id: str) -> Assignment:
    return Assignment(workload_id, "u1", node_id, Resources(), "a test", START)


SENT_TO_RUN = ReapplyState(1, None, START, "r1")
SENT_TO_REST = evolve(SENT_TO_RUN, last_apply_stops=True)


def test_what_is_sent_to_run_is_attached() -> None:
    """The hold begins with the announcement, before the agent answers."""
    after = _outcome(_workload(), _volume(), SENT_TO_RUN)
    held = holds_after("w", after, START)
    assert [(each.node_id, each.volume_id) for each in held.values()] == [("n1", "nfs:v")]


def test_what_is_only_told_to_rest_attaches_nothing() -> None:
    """A copy that somebody else started is found when it has ended: its volume may be another's
    by now, and to rest needs none (seed 30117)."""
    assert not holds_after("w", _outcome(_workload(), _volume(), SENT_TO_REST), START)


def test_what_runs_keeps_its_attachment_when_it_is_told_to_rest() -> None:
    """Only the node's word that it has the workload no more ends what is held."""
    before = _outcome(_workload(), _volume(), SENT_TO_RUN)
    held = holds_after("w", before, START)
    tx = _outcome(_workload(), _volume(), SENT_TO_REST).tx
    for key, hold in held.items():
        tx = tx.put(key, hold, None)
    assert holds_after("w", Outcome(ClusterView(), tx), START).keys() == held.keys()


def _deletes(volume: Volume, uid: str = "u1", node_id: str = "n1") -> bool:
    """Whether a delete takes the data, where nothing is held."""
    after = _outcome(_workload(driver=volume.driver), volume, SENT_TO_REST, node_id)
    return removes_data(node_id, "w", uid, after)


def test_without_a_hold_only_data_that_is_nobody_elses_goes() -> None:
    """The agent may have the data of a copy that the scheduler never sent."""
    assert _deletes(_volume("nfs", "w"))
    assert not _deletes(_volume("nfs", "holder", "w"))
    assert not _deletes(evolve(_volume("nfs", "w"), standalone=True))


def test_without_a_hold_data_of_a_later_life_stays() -> None:
    """The id was given anew, and the new workload has the same volume."""
    assert not _deletes(_volume("nfs", "w"), uid="u0")


def test_local_data_is_each_nodes_own() -> None:
    """Who uses a local volume of the same name on another node has other data."""
    assert _deletes(_volume("local", "holder", "w"))
    assert not _deletes(_volume("local", "holder", "w"), node_id="n2")


def test_what_is_retained_hinders_nothing() -> None:
    """The agent keeps it by itself, whatever it is told."""
    kept = evolve(_volume("nfs", "holder", "w"), retain_policy=RetainPolicy.RETAIN)
    assert _deletes(kept)
