"""Whose containers a demonstration may clear away: those of one that has certainly ended."""

from __future__ import annotations

import os

import pytest
from attrs import evolve

from persys_server.dev.marks import own_mark, parsed_mark


def test_a_mark_is_read_as_it_was_written() -> None:
    """It is one word, so that it may be a label's value."""
    mark = own_mark()
    assert parsed_mark(mark.text) == mark
    assert mark.pid == os.getpid()
    assert not {*mark.text} & {*" /:="}


@pytest.mark.parametrize(
    "text", ["", "persys-1", "persys-demo", "persys-demo.a.b.c.d.e", "x.a.b.c.1.2"]
)
def test_what_is_no_mark_is_nobodys(text: str) -> None:
    """Other clusters are never cleared away."""
    assert parsed_mark(text) is None


def test_who_runs_is_left_alone() -> None:
    """A demonstration does not end another, nor itself."""
    assert not own_mark().is_over(own_mark())


def test_who_is_gone_is_over() -> None:
    """Its process is not there, or has its number since another began, or the machine booted."""
    here = own_mark()
    assert evolve(here, began="1").is_over(here)
    assert evolve(here, pid=2**22 + 1).is_over(here)
    assert evolve(here, boot="other").is_over(here)


def test_who_cannot_be_seen_is_left_alone() -> None:
    """A process of another machine, or of another container of this one."""
    here = own_mark()
    assert not evolve(here, machine="other", began="1").is_over(here)
    assert not evolve(here, space="other", began="1").is_over(here)
