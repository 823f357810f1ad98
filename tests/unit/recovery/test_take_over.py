"""What another scheduler's records of a workload become."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from persys_core.model.resources import Resources
from persys_core.model.spec import ManagedVolume
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.volume import Attachment, Volume
from persys_core.model.workload import Assignment, Observed, StatusRecord, Workload
from persys_core.recovery.take_over import assignment_of, home_of, taken_over
from tests.builders import container

AT = datetime(2026, 1, 1, tzinfo=UTC)
NOW = AT + timedelta(days=1)
WORKLOAD = Workload("w1", "", container(), "theirs", DesiredState.RUNNING, AT, AT)
ASSIGNMENT = Assignment("w1", "", "n1", Resources(), "because", AT)
CHARGE = Resources.of(cpu_millicores=1000)
ATTACHMENT = Attachment("nfs:v", "w1", "n1", AT, AT, AT, driver="nfs", mount_path="/v")
VOLUME = Volume("nfs:v", "v", "nfs", AT, AT, size_gb=5)


def status(node_id: str = "n1", word: WorkloadStatus = WorkloadStatus.RUNNING) -> StatusRecord:
    return StatusRecord("w1", "", word, AT, Observed(node_id=node_id))


@pytest.mark.parametrize(
    ("known", "assignment", "home"),
    [
        (status("n1"), None, "n1"),
        (status("n2"), ASSIGNMENT, "n2"),
        (status(""), ASSIGNMENT, "n1"),
        (None, ASSIGNMENT, "n1"),
        (status(""), None, ""),
        (None, None, ""),
    ],
)
def test_its_home(known: StatusRecord | None, assignment: Assignment | None, home: str) -> None:
    """The status names it; the assignment, which is written after it, counts where it does not."""
    assert home_of(known, assignment) == home


def test_its_revision_stays_and_its_agent_is_asked_first() -> None:
    """No new revision, and the record says that the node has it, so that it is not sent anew."""
    taken = taken_over(WORKLOAD, status(), "n1", [], NOW)
    assert taken.workload == WORKLOAD
    assert taken.status.reapply.last_apply_at == NOW
    assert taken.status.reapply.last_apply_revision == "theirs"


def test_it_comes_out_the_same_again() -> None:
    """A take-over that is repeated changes nothing."""
    known = evolve(status(), user_metadata={"persys.disk.ids": "d1"})
    first = taken_over(WORKLOAD, known, "n1", [(ATTACHMENT, VOLUME)], NOW)
    later = NOW + timedelta(hours=1)
    again = taken_over(first.workload, first.status, "n1", [(ATTACHMENT, VOLUME)], later)
    assert again == first
    held = assignment_of(first, "n1", CHARGE, ASSIGNMENT, NOW)
    assert assignment_of(again, "n1", CHARGE, held, later) == held


def test_volumes_return_to_a_spec_without_any() -> None:
    """Those that it has attached (defect A1); a spec that names some is whole."""
    (wanted,) = taken_over(
        WORKLOAD, status(), "n1", [(ATTACHMENT, VOLUME)], NOW
    ).workload.spec.managed_volumes
    assert wanted == ManagedVolume("v", "nfs", 5, mount_path="/v", retain_policy="Delete")
    whole = evolve(WORKLOAD, spec=container(volumes=(ManagedVolume("other"),)))
    taken = taken_over(whole, status(), "n1", [(ATTACHMENT, VOLUME)], NOW)
    assert taken.workload == whole


def test_a_disk_of_its_own_is_no_volume_of_the_spec() -> None:
    """A standalone disk is named in the metadata, which returns to the spec."""
    known = evolve(status(), user_metadata={"persys.disk.ids": "nfs:v"})
    disk = evolve(VOLUME, standalone=True)
    taken = taken_over(WORKLOAD, known, "n1", [(ATTACHMENT, disk)], NOW)
    assert taken.workload.spec.managed_volumes == ()
    assert taken.workload.spec.metadata == {"persys.disk.ids": "nfs:v"}
    assert taken.status.user_metadata == {}


def test_a_spec_without_a_status_gets_one() -> None:
    """The wish is all that is known of it."""
    taken = taken_over(WORKLOAD, None, "", [], NOW)
    assert taken.status.status is WorkloadStatus.PENDING
    assert taken.status.reapply.last_apply_at is None


def test_its_assignment() -> None:
    """Charged where it is, with its own reason and instant where it had that place already."""
    taken = taken_over(WORKLOAD, status(), "n1", [], NOW)
    held = assignment_of(taken, "n1", CHARGE, ASSIGNMENT, NOW)
    assert held == evolve(ASSIGNMENT, charged=CHARGE)
    moved = assignment_of(taken, "n2", CHARGE, ASSIGNMENT, NOW)
    assert (moved.node_id, moved.reason) == ("n2", "taken over where it is")


def test_what_holds_nothing() -> None:
    """What completed, and what belongs to a node that is not known, has no share of any node."""
    done = taken_over(WORKLOAD, status(word=WorkloadStatus.COMPLETED), "n1", [], NOW)
    assert assignment_of(done, "n1", CHARGE, None, NOW).released
    lost = taken_over(WORKLOAD, status("gone"), "gone", [], NOW)
    held = assignment_of(lost, "gone", None, None, NOW)
    assert (held.released, held.charged) == (True, Resources())


def test_an_instant_of_another_clock_is_not_ahead() -> None:
    """Reports older than the assignment are not believed, so it is never dated later than now."""
    taken = taken_over(WORKLOAD, status(), "n1", [], NOW)
    ahead = evolve(ASSIGNMENT, created_at=NOW + timedelta(hours=1))
    assert assignment_of(taken, "n1", CHARGE, ahead, NOW).created_at == NOW
