"""Names of volumes: as the field normalises them, and never another place."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_agent.storage.mounts import parse_mountinfo
from persys_agent.storage.names import volume_key
from persys_agent.storage.port import StorageFailedError
from persys_core.model.spec import ManagedVolume


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("data", "data"),
        ("Team A/DB", "team-a-db"),
        ("-edge-", "edge"),
        ("a_b.c-d", "a_b.c-d"),
        ("über", "ber"),
        ("/etc/passwd", "etc-passwd"),
    ],
)
def test_names_become_keys(name: str, key: str) -> None:
    """Lower case, other characters become -, outer - are dropped."""
    assert volume_key(ManagedVolume(name)) == key


@given(st.text(max_size=300))
def test_no_name_becomes_another_place(name: str) -> None:
    """Whatever the name, the key is one plain part of a path, and its own key; or it is refused."""
    try:
        key = volume_key(ManagedVolume(name))
    except StorageFailedError:
        return
    assert PurePosixPath("/root", key).parts == ("/", "root", key)
    assert key not in (".", "..")
    assert not key.startswith((".", "-"))
    assert len(key) <= 200
    assert volume_key(ManagedVolume(key)) == key


@given(st.text(alphabet=" -/\\0123456789abc,\n", max_size=200))
def test_no_text_breaks_the_list_of_mounts(text: str) -> None:
    """Lines that are none are left out."""
    assert all(isinstance(each.point, str) for each in parse_mountinfo(text))
