from __future__ import annotations

import math
from pathlib import Path

import pytest

from persys_agent.state.lease_file import LeaseFile, boot_of_this_machine


def test_the_end_of_a_lease_outlives_the_process(tmp_path: Path) -> None:
    """The next process reads what the last one kept."""
    path = tmp_path / "lease.json"
    assert LeaseFile(path).recall() is None
    LeaseFile(path).keep(123.5)
    assert LeaseFile(path).recall() == 123.5
    assert boot_of_this_machine()


def test_it_does_not_outlive_the_machine(tmp_path: Path) -> None:
    """After another boot the clock began anew, so there is no lease; nor where no boot is known."""
    path = tmp_path / "lease.json"
    LeaseFile(path, boot="one").keep(123.5)
    assert LeaseFile(path, boot="two").recall() == -math.inf
    LeaseFile(path, boot="").keep(123.5)
    assert LeaseFile(path, boot="").recall() == -math.inf


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "b"}', '{"boot": "b", "ends": "x"}'])
def test_what_cannot_be_read_is_no_lease(tmp_path: Path, text: str) -> None:
    """A damaged file makes work stop early, never late."""
    path = tmp_path / "lease.json"
    path.write_text(text)
    assert LeaseFile(path, boot="b").recall() == -math.inf


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """The beat goes on; only a restart would stop work early."""
    LeaseFile(tmp_path / "missing" / "lease.json").keep(1.0)
