"""Where records stand: the reference's keys where it has them, ours under /persys/."""

import pytest
from hypothesis import given

from persys_adapters.records.layout import PREFIXES, key_at, path_of
from persys_core.model.drift import DriftType
from persys_core.ports.cluster_store import Key
from persys_core.testing.strategies import Entry, entries

REFERENCE_SCANS = (
    "/nodes/", "/workloads", "/assignments/", "/drifts/", "/volumes/", "/attachments/", "/events/"
)  # fmt: skip


@pytest.mark.slow
@given(entries())
def test_a_path_leads_back(entry: Entry) -> None:
    """Every key has a path of its own under a watched prefix, and the path names the key."""
    key, _ = entry
    path = path_of(key)
    assert key_at(path) == key
    assert path.startswith(PREFIXES)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (Key.node("n1"), "/nodes/n1"),
        (Key.workload("w1"), "/workloads-spec/w1"),
        (Key.status("w1"), "/workloads-status/w1"),
        (Key.assignment("w1"), "/assignments/w1"),
        (Key.allocation("n1"), "/persys/allocations/n1"),
        (Key.tombstone("n1", "w1"), "/persys/tombstones/n1/w1"),
        (Key.drift("n1", "w/1", DriftType.STATE_MISMATCH), "/drifts/n1/w_1/state_mismatch"),
        (Key.drift("n1", "", DriftType.ORPHAN_ON_AGENT), "/drifts/n1/_unknown/orphan_on_agent"),
        (Key.volume("nfs:data"), "/volumes/nfs:data"),
        (Key.attachment("n1", "w/1", "nfs:data"), "/attachments/n1/w_1/nfs:data"),
        (Key.attachment("n1", "", "nfs:data"), "/attachments/n1/_/nfs:data"),
        (Key.marker(), "/persys/cluster"),
        (Key.ledger(), "/persys/ledger"),
        (Key.leader("shard-0"), "/persys/scheduler/leader/shard-0"),
    ],
)
def test_paths_are_fixed(key: Key, path: str) -> None:
    """The paths are a format: data of older releases stands there."""
    assert path_of(key) == path


@pytest.mark.slow
@given(entries())
def test_ours_is_out_of_the_reference_sight(entry: Entry) -> None:
    """What the reference does not know stands under /persys/, never under a prefix it scans."""
    path = path_of(entry[0])
    assert path.startswith("/persys/") != path.startswith(REFERENCE_SCANS)


@pytest.mark.parametrize(
    "path",
    ["/nodes/n1/status", "/nodes/", "/retries/w1", "/persys/live/n1", "/persys/cluster2", "x", ""],
)
def test_other_keys_are_no_records(path: str) -> None:
    """Shadows, bare folders and other programs' keys are not taken for records."""
    assert key_at(path) is None


def test_odd_ids_stay_reachable() -> None:
    """A record that another scheduler wrote under an odd id can be named, hence removed."""
    assert key_at("/workloads-spec/a/b c") == Key.workload("a/b c")
    assert path_of(Key.workload("a/b c")) == "/workloads-spec/a/b c"
