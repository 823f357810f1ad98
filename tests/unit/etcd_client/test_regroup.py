"""Responses become revisions."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_adapters.etcd.client import KeyEvent, KeyValue, WatchBatch
from persys_adapters.etcd.client.regroup import Regrouper


def event(revision: int, key: str = "k") -> KeyEvent:
    """A write of ``key`` at ``revision``."""
    return KeyEvent(KeyValue(key.encode(), b"", revision, revision, 1, 0), False)


def revision_of(each: KeyEvent) -> int:
    """When it happened."""
    return each.kv.mod_revision


def events(*changes: tuple[int, str]) -> list[KeyEvent]:
    """Writes."""
    return [event(revision, key) for revision, key in changes]


def taken(batches: Iterable[WatchBatch]) -> list[tuple[int, list[str]]]:
    """The revisions and their keys."""
    return [(batch.revision, [each.key.decode() for each in batch.events]) for batch in batches]


def test_a_response_is_split_by_revision() -> None:
    """Each revision is a batch with all of its events, and a new line begins after the last."""
    regroup = Regrouper(3)
    found = taken(regroup.feed(events((3, "a"), (3, "b"), (5, "a")), False))
    assert found == [(3, ["a", "b"]), (5, ["a"])]
    assert regroup.next_revision == 6


def test_a_split_revision_is_joined() -> None:
    """The last revision of a response that goes on waits for the rest of it."""
    regroup = Regrouper(3)
    assert taken(regroup.feed(events((3, "a"), (4, "a")), True)) == [(3, ["a"])]
    assert taken(regroup.feed(events((4, "b")), True)) == []
    assert regroup.next_revision == 4
    assert taken(regroup.feed(events((4, "c")), False)) == [(4, ["a", "b", "c"])]


def test_a_lost_line_begins_its_revision_again() -> None:
    """What had come of a revision that was not whole is dropped: it comes again, once (E01)."""
    regroup = Regrouper(3)
    assert taken(regroup.feed(events((3, "a")), True)) == []
    regroup.line_lost()
    assert taken(regroup.feed(events((3, "a"), (3, "b")), False)) == [(3, ["a", "b"])]


def test_what_is_not_wanted_is_dropped() -> None:
    """Events before the asked revision are not handed out."""
    assert taken(Regrouper(5).feed(events((4, "a"), (5, "a")), False)) == [(5, ["a"])]


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    cuts=st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=12),
)
def test_any_cutting_gives_each_revision_once(
    sizes: list[int], cuts: list[tuple[int, bool]]
) -> None:
    """However a history is cut into responses, and lines lost, each revision comes once, whole."""
    history = [(1 + at, [f"k{n}" for n in range(size)]) for at, size in enumerate(sizes)]
    flat = [event(revision, key) for revision, keys in history for key in keys]
    regroup, found, at = Regrouper(1), list[tuple[int, list[str]]](), 0
    for length, is_lost in [*cuts, (len(flat), False)]:
        part = flat[at : at + length]
        at += len(part)
        goes_on = (
            at < len(flat) and bool(part) and flat[at].kv.mod_revision == part[-1].kv.mod_revision
        )
        found += taken(regroup.feed(part, goes_on))
        if is_lost:
            regroup.line_lost()
            at = sum(revision_of(each) < regroup.next_revision for each in flat)
    at = sum(revision_of(each) < regroup.next_revision for each in flat)
    found += taken(regroup.feed(flat[at:], False))
    assert found == history
