"""How good a feasible node is: the arithmetic of the seed, its penalties and its ties."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from persys_core.model.constraints import SchedulingStrategy
from persys_core.model.resources import Resources
from persys_core.placement.placer import Placer
from persys_core.placement.request import PlacementRequest
from persys_core.placement.reservations import Reservations
from persys_core.placement.strategies import SmallestName, Spread
from tests.unit.placement.cluster import NOW, SECOND, Cluster, make_node, want

PLAIN = want()


def scores(cluster: Cluster, request: PlacementRequest = PLAIN) -> dict[str, float]:
    """The score of every feasible node to nine places, best first."""
    ranked = cluster.placer.candidates(request, NOW, 100)
    return {one.node_id: round(one.score, 9) for one in ranked}


def test_an_empty_fleet_scores_full_marks() -> None:
    """0.4 x 1 + 0.4 x 1 + 0.2 x 1, since no candidate has a workload."""
    decision = Cluster(make_node()).placed(want())
    assert decision.score == pytest.approx(1.0)
    assert decision.parts == pytest.approx({"cpu": 0.4, "memory": 0.4, "spread": 0.2})


def test_the_seeds_formula() -> None:
    """Headroom of cpu and memory before the new workload, and quiet beside the busiest."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    cluster.charge("n1", cpu=1000, memory=4000, count=1)
    cluster.charge("n2", cpu=0, memory=6000, count=4)
    assert scores(cluster) == pytest.approx(
        {
            "n1": 0.4 * 0.75 + 0.4 * 0.50 + 0.2 * (1 - 1 / 4),
            "n2": 0.4 * 1.00 + 0.4 * 0.25 + 0.2 * (1 - 4 / 4),
        }
    )


def test_the_reason_text() -> None:
    """The words that assignments of the reference carry."""
    cluster = Cluster(make_node())
    cluster.charge("n1", cpu=1000, count=3)
    assert cluster.placed(want()).reason == (
        "selected by placement score 0.7000 (cpu/mem headroom + spread, node has 3 workloads)"
    )


def test_spread_is_relative_to_the_busiest_candidate() -> None:
    """A busier node that is not feasible does not make the others look quiet."""
    cluster = Cluster(make_node("n1"), make_node("n2", labels={"zone": "b"}))
    cluster.charge("n1", count=1)
    cluster.charge("n2", count=100)
    assert cluster.placed(want(exclude_nodes="n2")).parts["spread"] == 0.0
    assert cluster.placed(want()).parts["spread"] == pytest.approx(0.2 * 0.99)


def test_headroom_is_of_what_may_be_allocated() -> None:
    """Free and total both leave the host's reserve out."""
    node = evolve(make_node(cpu=5000), reserved=Resources.of(cpu_millicores=1000))
    cluster = Cluster(node)
    cluster.charge("n1", cpu=1000)
    assert cluster.placed(want()).parts["cpu"] == pytest.approx(0.4 * 3000 / 4000)


def test_a_node_above_capacity_has_no_headroom() -> None:
    """Headroom ends at zero, and a node without a resource has none of it."""
    cluster = Cluster(make_node("n1"))
    cluster.charge("n1", cpu=5000)
    assert cluster.placed(want()).parts["cpu"] == 0.0
    assert Cluster(make_node(cpu=0)).placed(want()).parts["cpu"] == 0.0


def test_measured_use_counts_where_it_is_worse() -> None:
    """The smaller of ledger free and reported free is taken, of the whole machine's use in whole
    sixteenths."""
    node = evolve(make_node(cpu=5000), reserved=Resources.of(cpu_millicores=1000))
    cluster = Cluster(node)
    cluster.charge("n1", cpu=1000)
    cluster.report("n1", cpu=500)
    assert cluster.placed(want()).parts["cpu"] == pytest.approx(0.4 * 3000 / 4000)
    cluster.report("n1", cpu=3000)
    assert cluster.placed(want()).parts["cpu"] == pytest.approx(0.4 * 2188 / 4000)
    cluster.report("n1", cpu=3125)
    assert cluster.placed(want()).parts["cpu"] == pytest.approx(0.4 * 1875 / 4000)


def test_nodes_that_are_alike_keep_their_places() -> None:
    """What two measurements of a quiet node differ in decides nothing: the same plan twice names
    the same node, whatever was reported in between."""
    names = [f"n{number}" for number in range(5)]
    cluster = Cluster(*(make_node(name, cpu=4000, memory=8000) for name in names))
    for name in names:
        cluster.charge(name, cpu=500, memory=1000)
    chosen = cluster.chosen(want())
    for beat in range(20):
        for place, name in enumerate(names):
            noise = (beat * 7 + place * 3) % 11
            used = {"cpu": 510 + 20 * noise, "memory": 1010 + 40 * noise}
            cluster.report(name, **used, at=NOW + beat * SECOND)
        assert cluster.chosen(want()) == chosen
    cluster.report(chosen, cpu=3000, at=NOW + 30 * SECOND)
    assert cluster.chosen(want()) != chosen


def test_old_reports_do_not_count() -> None:
    """A report counts for 90 s; a newer one in between counts from its own instant."""
    cluster = Cluster(make_node())
    request = want()
    cluster.report("n1", cpu=2000)
    assert cluster.placed(request, NOW + 89 * SECOND).parts["cpu"] == pytest.approx(0.2)
    cluster.report("n1", cpu=1000, at=NOW + 60 * SECOND)
    cluster.report("n1", cpu=3000, at=NOW + 50 * SECOND)
    assert cluster.placed(request, NOW + 149 * SECOND).parts["cpu"] == pytest.approx(0.3)
    assert cluster.placed(request, NOW + 150 * SECOND).parts["cpu"] == pytest.approx(0.4)


def test_reservations_lower_the_reported_headroom_only() -> None:
    """Without a report nothing changes; with one, what is in flight is taken off it."""
    cluster = Cluster(make_node())
    request = want()
    cluster.reservations.hold("n1", "w9", Resources.of(cpu_millicores=2000), NOW)
    assert cluster.placed(request).parts["cpu"] == pytest.approx(0.4)
    cluster.report("n1", cpu=1000)
    assert cluster.placed(request).parts["cpu"] == pytest.approx(0.4 * 1000 / 4000)
    cluster.reservations.hold("n1", "w8", Resources.of(cpu_millicores=500), NOW)
    assert cluster.placed(request).parts["cpu"] == pytest.approx(0.4 * 500 / 4000)
    cluster.reservations.release("n1", "w9")
    assert cluster.placed(request).parts["cpu"] == pytest.approx(0.4 * 2500 / 4000)
    assert cluster.chosen(want(cpu=4000)) == "n1"


def test_reservations_end() -> None:
    """One ends 90 s after it was last held, all when they are cleared."""
    cluster = Cluster(make_node())
    cluster.report("n1", at=NOW + 100 * SECOND)
    held = Resources.of(cpu_millicores=2000)

    def cpu_after(seconds: int) -> float:
        return cluster.placed(want(), NOW + seconds * SECOND).parts["cpu"]

    cluster.reservations.hold("n1", "w1", held, NOW)
    cluster.reservations.hold("n1", "w1", held, NOW + 60 * SECOND)
    assert cpu_after(149) == pytest.approx(0.2)
    assert cpu_after(150) == pytest.approx(0.4)
    cluster.reservations.hold("n1", "w1", held, NOW + 150 * SECOND)
    assert cpu_after(151) == pytest.approx(0.2)
    cluster.reservations.clear()
    assert cpu_after(152) == pytest.approx(0.4)


def test_reservations_of_nothing() -> None:
    """A workload that asks for nothing is held and released like any other."""
    cluster = Cluster(make_node())
    cluster.reservations.hold("n1", "w1", Resources(), NOW)
    cluster.reservations.hold("n1", "w2", Resources.of(cpu_millicores=1000), NOW)
    cluster.reservations.release("n1", "w2")
    cluster.reservations.release("n1", "w1")
    cluster.reservations.release("n1", "w1")
    assert cluster.reservations.in_flight("n1") == {}


def test_a_taint_that_only_deters() -> None:
    """PreferNoSchedule costs the whole scale, once, unless it is tolerated."""
    taints = ("old:PreferNoSchedule", "slow:PreferNoSchedule")
    cluster = Cluster(make_node("n1", taints=taints), make_node("n2"))
    cluster.charge("n2", cpu=4000, memory=8000, count=9)
    assert scores(cluster) == {"n2": 0.0, "n1": 0.0}
    assert cluster.placed(want(exclude_nodes="n2")).parts["prefer_no_schedule"] == -1.0
    assert scores(cluster, want(tolerations="old,slow"))["n1"] == 1.0
    assert scores(cluster, want(tolerations="old"))["n1"] == 0.0


def test_the_node_of_the_last_failure_is_a_last_resort() -> None:
    """It is taken only where nothing else is left."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    cluster.charge("n2", cpu=3000, count=5)
    request = evolve(want(), avoid_node="n1")
    assert cluster.chosen(request) == "n2"
    cluster.fleet.set_alive("n2", False)
    assert cluster.chosen(request) == "n1"
    assert cluster.placed(request).parts["avoid_node"] == -1.0


def test_binpack_prefers_the_fullest() -> None:
    """The mirror of spread: little headroom is good, the number of workloads does not matter."""
    deterring = make_node("n3", taints=("a:PreferNoSchedule",))
    cluster = Cluster(make_node("n1"), make_node("n2"), deterring)
    cluster.charge("n1", cpu=2000, memory=2000, count=1)
    cluster.charge("n2", cpu=1000, memory=2000, count=9)
    cluster.charge("n3", cpu=4000, memory=8000, count=9)
    expected = {
        "n1": 0.5 * 0.50 + 0.5 * 0.25,
        "n2": 0.5 * 0.25 + 0.5 * 0.25,
        "n3": 0.5 + 0.5 - 1.0,
    }
    assert scores(cluster, want(strategy="binpack")) == expected
    assert list(scores(cluster, want(strategy="binpack"))) == ["n1", "n2", "n3"]


def test_spread_by_counts_per_domain() -> None:
    """Workloads are counted per zone, on whatever nodes they are; no zone is a zone of its own."""
    cluster = Cluster(
        make_node("a1", labels={"zone": "a"}),
        make_node("a2", labels={"zone": "a"}),
        make_node("b1", labels={"zone": "b"}),
        make_node("none"),
    )
    cluster.charge("a1", count=3)
    cluster.charge("a2", count=1)
    cluster.charge("b1", count=2)
    assert scores(cluster, want(spread_by="zone")) == {"none": 1.0, "b1": 0.9, "a1": 0.8, "a2": 0.8}
    cluster.add(make_node("none", labels={"zone": "a"}))
    assert scores(cluster, want(spread_by="zone"))["none"] == 0.8
    cluster.fleet.remove_node("a1")
    cluster.add(make_node("new"))
    expected = {"new": 1.0, "none": 0.9, "a2": 0.9, "b1": 0.8}
    assert scores(cluster, want(spread_by="zone")) == expected


def test_ones_own_share_is_not_counted_twice() -> None:
    """On the node where it is, a workload finds its own charge free and itself not counted."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    cluster.charge("n1", cpu=4000, memory=8000, count=2)
    cluster.charge("n2", cpu=4000, count=1)
    own = Resources.of(cpu_millicores=3000, memory_mb=4000)
    request = evolve(want(cpu=3000), credit=("n1", own))
    decision = cluster.placed(request)
    assert decision.node_id == "n1"
    assert decision.parts == pytest.approx({"cpu": 0.4 * 0.75, "memory": 0.2, "spread": 0.0})
    assert "asked 3001, at most 3000" in cluster.chosen(
        evolve(request, demand=Resources.of(cpu_millicores=3001))
    )
    assert cluster.chosen(want(cpu=3000)).startswith("0/2")
    assert cluster.chosen(evolve(want(cpu=3000), credit=("gone", own))).startswith("0/2")


def test_ties_are_stable_and_fair() -> None:
    """Equal nodes share the workloads; the same workload always goes to the same one."""
    names = [f"n{number}" for number in range(4)]
    cluster, other = Cluster(*map(make_node, names)), Cluster(*map(make_node, reversed(names)))
    requests = [want(f"w{number}") for number in range(400)]
    taken = [cluster.chosen(request) for request in requests]
    assert taken == [other.chosen(request) for request in requests]
    assert all(60 < share < 140 for share in Counter(taken).values()), Counter(taken)
    assert len(set(taken)) == 4


def test_ties_have_a_width() -> None:
    """Nodes within 1e-9 of the best are its equals; beyond, the better one wins."""
    large = 10**8
    cluster = Cluster(make_node("n1", cpu=large), make_node("n2", cpu=large))
    cluster.charge("n2", cpu=1, count=0)
    assert {cluster.chosen(want(f"w{number}")) for number in range(40)} == {"n1"}
    wide = Cluster(make_node("n1", memory=10**10), make_node("n2", memory=10**10))
    wide.charge("n2", memory=2, count=0)
    assert {wide.chosen(want(f"w{number}")) for number in range(40)} == {"n1", "n2"}


def test_ties_can_be_broken_otherwise() -> None:
    """A strategy brings its own tie-break, here the smallest name."""
    cluster = Cluster(make_node("n2"), make_node("n1"), make_node("n3"))
    by_name = {SchedulingStrategy.SPREAD: Spread(SmallestName())}
    placer = Placer(cluster.fleet, Reservations(), by_name)
    ranked = placer.candidates(want(), NOW, 3)
    assert [one.node_id for one in ranked] == ["n1", "n2", "n3"]


def test_candidates_begin_with_the_choice() -> None:
    """The ranking has the best first, each with the parts that its score is the sum of."""
    cluster = Cluster(*(make_node(f"n{number}") for number in range(5)))
    for number in range(5):
        cluster.charge(f"n{number}", cpu=500 * (number // 2), count=number // 2)
    ranked = cluster.placer.candidates(want(), NOW, 4)
    assert len(ranked) == 4
    assert ranked[0].node_id == cluster.chosen(want())
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert all(sum(one.parts.values()) == pytest.approx(one.score) for one in ranked)
    assert cluster.placer.candidates(want(cpu=10**6), NOW, 4) == []
