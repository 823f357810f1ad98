"""The replica's picture of the store."""

from __future__ import annotations

from persys_core.control.view import ClusterView
from persys_core.ports.cluster_store import Change, Key, Snapshot, Versioned
from tests.builders import make_node

KEY = Key.node("n1")


def loaded() -> ClusterView:
    view = ClusterView()
    view.load(Snapshot(1, {}, ("/nodes/n1",), frozenset((KEY,))))
    return view


def test_what_cannot_be_read_is_not_absent() -> None:
    """A lost race shows it as absent, which says nothing; any of several keys counts."""
    view = loaded()
    view.refresh(2, {KEY: None})
    assert view.is_unreadable(Key.node("n2"), KEY)
    assert not view.is_unreadable(Key.node("n2"))


def test_it_is_over_once_it_is_read_or_removed() -> None:
    """A repaired record is like any other, and one that was removed is gone."""
    repaired, removed, reloaded = loaded(), loaded(), loaded()
    repaired.refresh(2, {KEY: Versioned(make_node(), 2, 1)})
    removed.apply(2, [Change(KEY, None)])
    reloaded.load(Snapshot(2, {}))
    for view in (repaired, removed, reloaded):
        assert not view.is_unreadable(KEY)
