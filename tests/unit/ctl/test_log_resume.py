"""Output that was broken off: what is asked for again, and what was seen before."""

from __future__ import annotations

from persysctl.agent import Place
from persysctl.log_resume import RESUMED_LINES, Bookmark
from tests.unit.ctl.agents import line

HERE, THERE = Place("n1", "h1:1"), Place("n2", "h2:1")


def test_the_first_time_is_as_was_asked() -> None:
    """The person's tail is asked for, and every line is new, whatever its instant."""
    bookmark = Bookmark(7)
    assert bookmark.resumed_at(HERE) == 7
    assert [bookmark.is_new(line("x", at)) for at in (5, 5, 0, 3)] == [True] * 4


def test_on_the_same_node_only_newer_lines() -> None:
    """Lines up to the newest instant are left out, and of those in it as many as were seen."""
    bookmark = Bookmark(7)
    bookmark.resumed_at(HERE)
    for at in (1, 5, 5):
        bookmark.is_new(line("x", at))
    assert bookmark.resumed_at(HERE) == RESUMED_LINES
    assert [bookmark.is_new(line("x", at)) for at in (1, 5, 5, 5, 6)] == [
        False, False, False, True, True,
    ]  # fmt: skip


def test_services_are_told_apart() -> None:
    """What one service wrote last says nothing of another, nor one stream of the other."""
    bookmark = Bookmark(7)
    bookmark.resumed_at(HERE)
    bookmark.is_new(line("x", 9, source="a"))
    bookmark.resumed_at(HERE)
    assert bookmark.is_new(line("y", 3, source="b"))
    assert bookmark.is_new(line("y", 3, "stderr", source="a"))
    assert not bookmark.is_new(line("x", 9, source="a"))


def test_without_instants_only_what_is_to_come() -> None:
    """Lines that cannot be told apart are not asked for again."""
    bookmark = Bookmark(7)
    bookmark.resumed_at(HERE)
    bookmark.is_new(line("x"))
    assert bookmark.resumed_at(HERE) == 0
    assert bookmark.is_new(line("y"))


def test_on_another_node_from_the_beginning() -> None:
    """Another node's output is new, also where its clock is behind."""
    bookmark = Bookmark(0)
    bookmark.resumed_at(HERE)
    bookmark.is_new(line("x", 9))
    assert bookmark.resumed_at(THERE) == RESUMED_LINES
    assert bookmark.is_new(line("y", 3))


def test_nothing_seen_yet() -> None:
    """Before the first line the person's tail still holds: none is none."""
    none, some = Bookmark(0), Bookmark(7)
    assert [none.resumed_at(HERE), none.resumed_at(HERE)] == [0, 0]
    assert [some.resumed_at(HERE), some.resumed_at(HERE)] == [7, 7]
