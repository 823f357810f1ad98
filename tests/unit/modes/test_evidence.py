from __future__ import annotations

from datetime import UTC, datetime

import pytest
from attrs import evolve

from persys_core.model.cluster import ClusterMarker, MarkerState
from persys_core.modes.evidence import (
    Found,
    Known,
    Witness,
    is_new_cluster,
    judge_store,
    judge_work,
    rewound_to,
)
from persys_core.modes.machine import ModeEvent
from persys_core.ports.cluster_store import Key

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MARKER = ClusterMarker("c1", T0)
KNOWN = Known("c1", backend_id="etcd-7", revision=1200)
SECOND_LIFE = Known("c1", revision=12, epoch_base=7000)
KEY, OTHER = Key.workload("w"), Key.node("n")
WITNESSED = evolve(KNOWN, witnesses=(Witness(KEY, 1190), Witness(OTHER, 1100)))
REWOUND = evolve(WITNESSED, rewound_to=1150)


def _life(epoch_base: int) -> ClusterMarker:
    return ClusterMarker("c1", T0, MarkerState.ACTIVE, epoch_base)


@pytest.mark.parametrize(
    ("known", "found", "event", "detail"),
    [
        (None, Found(None), ModeEvent.DATA_WHOLE, ""),
        (None, Found(MARKER, "etcd-9", 5), ModeEvent.DATA_WHOLE, ""),
        (KNOWN, Found(MARKER, "etcd-7", 1200), ModeEvent.DATA_WHOLE, ""),
        (KNOWN, Found(MARKER, "", 1300), ModeEvent.DATA_WHOLE, ""),
        (KNOWN, Found(None, "etcd-7", 1), ModeEvent.MARKER_MISSING, "c1"),
        (KNOWN, Found(None, "etcd-7", 9999), ModeEvent.MARKER_MISSING, "c1"),
        (KNOWN, Found(ClusterMarker("c2", T0), "etcd-7", 1300), ModeEvent.CLUSTER_CHANGED, "c2"),
        (KNOWN, Found(MARKER, "etcd-8", 1300), ModeEvent.CLUSTER_CHANGED, "etcd-8"),
        (KNOWN, Found(MARKER, "etcd-7", 1000), ModeEvent.REVISION_REWOUND, "1000"),
        (WITNESSED, Found(MARKER, "", 1300, {KEY: 1190, OTHER: 1250}), ModeEvent.DATA_WHOLE, ""),
        (WITNESSED, Found(MARKER, "", 1300, {}), ModeEvent.DATA_WHOLE, ""),
        (WITNESSED, Found(MARKER, "", 1300, {KEY: 1189}), ModeEvent.REVISION_REWOUND, "1189"),
        (REWOUND, Found(MARKER, "", 1300, {OTHER: 1100}), ModeEvent.REVISION_REWOUND, "1150"),
        (REWOUND, Found(MARKER, "", 1300, {KEY: 1250}), ModeEvent.REVISION_REWOUND, "1150"),
        (REWOUND, Found(MARKER, "", 1199, {KEY: 1190}), ModeEvent.REVISION_REWOUND, "1199"),
        (REWOUND, Found(MARKER, "", 1200, {KEY: 1190}), ModeEvent.DATA_WHOLE, ""),
        (REWOUND, Found(_life(1), "", 1160), ModeEvent.DATA_WHOLE, ""),
        (SECOND_LIFE, Found(_life(7000), "", 12), ModeEvent.DATA_WHOLE, ""),
        (SECOND_LIFE, Found(_life(8000), "", 13), ModeEvent.DATA_WHOLE, ""),
        (
            SECOND_LIFE,
            Found(_life(6000), "", 1300),
            ModeEvent.REVISION_REWOUND,
            "epoch base 7000 was seen, now it is 6000",
        ),
        (SECOND_LIFE, Found(MARKER, "", 1300), ModeEvent.REVISION_REWOUND, "now it is 0"),
    ],
)
def test_a_store_is_compared_with_what_is_known(
    known: Known | None, found: Found, event: ModeEvent, detail: str
) -> None:
    """Missing marker, other cluster, lower revision, former life: each has its event (E03, E04)."""
    judged, text = judge_store(known, found)
    assert judged is event
    assert detail in text


def test_how_far_a_store_went_back() -> None:
    """At most to its own revision, and before what it has only in an older state."""
    assert rewound_to(KNOWN, Found(MARKER, "", 1000)) == 1000
    assert rewound_to(WITNESSED, Found(MARKER, "", 1300, {KEY: 900})) == 1189


def test_a_former_life_leaves_no_doubt_once_the_later_one_is_back() -> None:
    """Its marker tells it as long as it is there; no revision of it may outlast that."""
    assert rewound_to(SECOND_LIFE, Found(_life(6000), "", 1300)) == 0
    assert judge_store(SECOND_LIFE, Found(_life(7000), "", 13))[0] is ModeEvent.DATA_WHOLE


def test_only_a_store_that_nobody_knows_is_new() -> None:
    """The marker is written on the first start alone, never over a loss (defects A3, A4)."""
    assert is_new_cluster(None, Found(None))
    assert not is_new_cluster(KNOWN, Found(None))
    assert not is_new_cluster(None, Found(MARKER))


def test_work_on_a_fresh_store_means_that_data_was_lost() -> None:
    """What runs cannot have been placed by a store that never placed anything (E04)."""
    active = ClusterMarker("c1", T0, MarkerState.ACTIVE)
    assert judge_work(MARKER, 5) is ModeEvent.WORK_WHILE_FRESH
    assert judge_work(MARKER, 0) is None
    assert judge_work(active, 5) is None
    assert judge_work(None, 5) is None
