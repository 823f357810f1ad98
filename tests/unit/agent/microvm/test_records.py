"""What is written down of a microVM."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve

from persys_agent.runtimes.microvm.process import ProcessId
from persys_agent.runtimes.microvm.records import Ending, Record, folder_of, folders
from persys_agent.runtimes.port import Order, Owner
from persys_core.model.resources import Resources
from persys_core.model.spec import VmSpec, WorkloadSpec
from persys_core.model.states import WorkloadType

ORDER = Order("w", "r", "h", WorkloadSpec(WorkloadType.MICROVM, Resources(), VmSpec(1, 64)))
BEGUN = Record.begun(ORDER, Owner("n1", "c1"))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = evolve(
    BEGUN,
    is_complete=True,
    requests=(("/machine-config", {"vcpu_count": 1}),),
    taps=("tap0",),
    metadata={"key": "value"},
    process=ProcessId(1, 2),
    started_at=NOW,
    is_stopping=True,
    ending=Ending(3, NOW, was_asked=True),
)


@pytest.mark.parametrize("record", [BEGUN, FULL])
def test_a_record_comes_back(tmp_path: Path, record: Record) -> None:
    """As it was, in a file and a folder that are its agent's alone."""
    folder = folder_of(tmp_path, "w")
    assert folder.make(record)
    assert folder.read() == record
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert (folder.path / "machine.json").stat().st_mode & 0o777 == 0o600


def test_a_folder_is_taken_once(tmp_path: Path) -> None:
    """Of two agents that want one workload, one gets it."""
    folder = folder_of(tmp_path, "w")
    assert folder.make(BEGUN)
    assert not folder.make(evolve(BEGUN, owner=Owner("n2")))
    assert folder.read() == BEGUN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"owner": {"node_id": "n1"}}'])
def test_what_is_no_record_is_said(tmp_path: Path, text: str) -> None:
    """A broken record is an error, never the absence of a machine."""
    folder = folder_of(tmp_path, "w")
    folder.make(BEGUN)
    (folder.path / "machine.json").write_text(text)
    with pytest.raises(ValueError):  # noqa: PT011  # of whatever kind
        folder.read()


def test_absence_is_none(tmp_path: Path) -> None:
    """No folder, no machine; no folders, no machines."""
    assert folder_of(tmp_path / "none", "w").read() is None
    assert list(folders(tmp_path / "none")) == []


def test_a_folder_goes_away_whole(tmp_path: Path) -> None:
    """All that lies in it goes; its place is free again."""
    folder = folder_of(tmp_path, "w")
    folder.make(FULL)
    (folder.path / "rootfs.raw").touch()
    folder.delete()
    assert os.listdir(tmp_path) == []


def test_names_fit_whatever_the_id(tmp_path: Path) -> None:
    """A socket's path stays short, and ids never become paths."""
    long = folder_of(tmp_path, "a" * 253)
    assert len(long.path.name) == 16
    assert long.path.parent == tmp_path
    assert long != folder_of(tmp_path, "A" * 253)


def test_firecracker_takes_the_instance_id() -> None:
    """At most 64 letters, digits and dashes, another for each revision."""
    assert BEGUN.instance_id.isalnum()
    assert len(BEGUN.instance_id) <= 64
    other = Record.begun(evolve(ORDER, revision_id="r2"), Owner("n1", "c1"))
    assert other.instance_id != BEGUN.instance_id
