"""When the release of a lost node has been carried out."""

from __future__ import annotations

import pytest

from persys_core.control.releases import Releases
from persys_core.control.work import tombstone_work, workload_work
from persys_core.ports.cluster_store import StoreUnavailableError


class View:
    """Which workloads are assigned to the one node."""

    def __init__(self, *workload_ids: str) -> None:
        self.assigned = frozenset(workload_ids)

    def assigned_to(self, node_id: str) -> frozenset[str]:
        """Those of the node n."""
        return self.assigned if node_id == "n" else frozenset()


def released(view: View) -> Releases:
    releases = Releases()
    releases.begin("n", view.assigned)
    return releases


def test_nothing_is_under_way_without_a_release() -> None:
    """A quiet cluster waits for nothing."""
    assert not Releases().under_way(View("a"))


def test_every_workload_is_looked_at_once() -> None:
    """Whether or not it can leave: what is pinned to its node holds nobody up."""
    view = View("a", "b")
    releases = released(view)
    with releases.looking_at(workload_work("a")):
        assert releases.under_way(view)
    assert releases.under_way(view)
    with releases.looking_at(workload_work("b")):
        pass
    assert not releases.under_way(view)


def test_what_has_left_or_was_deleted_is_waited_for_no_longer() -> None:
    """No look is owed at it any more."""
    releases = released(View("a"))
    assert not releases.under_way(View())


def test_a_look_that_began_before_the_release_does_not_count() -> None:
    """It decided by a node that nothing could leave yet."""
    view, releases = View("a"), Releases()
    with releases.looking_at(workload_work("a")):
        releases.begin("n", view.assigned)
    assert releases.under_way(view)


def test_a_look_that_the_store_had_no_say_in_does_not_count() -> None:
    """It is repeated, and its commit may come to hold by itself."""
    view = View("a")
    releases = released(view)
    with pytest.raises(StoreUnavailableError), releases.looking_at(workload_work("a")):
        raise StoreUnavailableError("late")
    assert releases.under_way(view)


def test_a_bug_holds_up_no_other_node() -> None:
    """Its repair may take weeks."""
    view = View("a")
    releases = released(view)
    with pytest.raises(ZeroDivisionError), releases.looking_at(workload_work("a")):
        raise ZeroDivisionError
    assert not releases.under_way(view)


def test_the_delete_that_is_owed_is_another_work() -> None:
    """A tombstone of the workload elsewhere says nothing of the share here."""
    view = View("a")
    releases = released(view)
    with releases.looking_at(tombstone_work("m", "a")):
        pass
    assert releases.under_way(view)
