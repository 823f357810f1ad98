"""The view is right whatever the order of changes, and does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

from attrs import evolve

from persys_core.model.node import StoragePool
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation
from persys_core.placement.columns import ChangeLog
from persys_core.placement.fleet import Fleet
from persys_core.placement.placer import Placer
from persys_core.placement.prepared import ClassCache
from persys_core.placement.reservations import Reservations
from tests.unit.placement.cluster import NOW, Cluster, make_node, want


def test_the_order_of_facts_does_not_matter() -> None:
    """Ledger, liveness, listing and use may be known before the node is."""
    usage = NodeUsage("n1", Resources.of(memory_mb=6000), NOW)
    facts: list[Callable[[Fleet], None]] = [
        lambda fleet: fleet.set_node(make_node()),
        lambda fleet: fleet.set_alive("n1", True),
        lambda fleet: fleet.set_listed("n1", True),
        lambda fleet: fleet.set_allocation(Allocation("n1", Resources.of(cpu_millicores=1000), 2)),
        lambda fleet: fleet.set_usage(usage),
    ]
    decisions = set()
    for order in permutations(facts):
        cluster = Cluster()
        for fact in (*order, order[0]):
            fact(cluster.fleet)
        placed = cluster.placed(want())
        decisions.add((round(placed.score, 9), placed.workload_count))
    assert decisions == {(0.4 * 0.75 + 0.4 * 0.25, 2)}


def test_a_node_that_comes_back_must_be_seen_anew() -> None:
    """Removal forgets liveness, listing and use, but not the ledger, which is another record."""
    cluster = Cluster(make_node())
    cluster.charge("n1", cpu=1000)
    cluster.report("n1", cpu=3000)
    cluster.fleet.remove_node("n1")
    cluster.fleet.remove_node("n1")
    assert cluster.chosen(want()) == "0/0 nodes: no nodes are registered"
    cluster.fleet.set_node(make_node())
    assert cluster.codes(want()) == {"node_not_ready": 1}
    cluster.add(make_node())
    assert cluster.placed(want()).parts["cpu"] == 0.4 * 0.75


def test_an_empty_ledger_is_none() -> None:
    """A node whose last workload left looks as if it never had one."""
    cluster = Cluster(make_node())
    cluster.charge("n1", cpu=4000)
    cluster.fleet.set_allocation(Allocation("n1"))
    assert cluster.fleet.allocation("n1") == Allocation("n1")
    assert cluster.placed(want(cpu=4000)).score == 1.0


def test_nodes_come_and_go_without_growth() -> None:
    """Rows are used again: a thousand nodes, ten at a time, take ten rows."""
    cluster = Cluster()
    request = want(node_selector__zone="z999")
    for number in range(1000):
        pools = (StoragePool(f"pool{number}", "local", 10),)
        cluster.add(make_node(f"n{number}", labels={"zone": f"z{number}"}, pools=pools))
        cluster.placer.place(request, NOW)
        if number >= 10:
            cluster.fleet.remove_node(f"n{number - 10}")
    table = cluster.fleet.table
    assert (len(table), len(table.ids), len(table.pool_maps)) == (10, 11, 10)
    assert len(cluster.fleet.properties.values("label:zone")) == 10
    assert cluster.chosen(request) == "n999"


def test_a_row_keeps_nothing_of_its_last_node() -> None:
    """The next node in a row has its own numbers, labels and name."""
    cluster = Cluster(make_node("n1", labels={"zone": "a"}), make_node("n2"))
    cluster.charge("n1", cpu=3000, count=7)
    cluster.placed(want())
    cluster.fleet.remove_node("n1")
    cluster.add(make_node("n3"))
    assert cluster.fleet.table.row_of("n3") == 0
    assert cluster.codes(want(node_selector__zone="a")) == {"selector": 2}
    assert cluster.placed(want(exclude_nodes="n2")).workload_count == 0


def test_changes_reach_classes_that_were_prepared_before() -> None:
    """Each kind of change to a node is seen by the next decision of a known class."""
    node = make_node(labels={"zone": "a"})
    cluster = Cluster(node, make_node("n2"))
    request = want(node_selector__zone="a")
    assert cluster.chosen(request) == "n1"
    cluster.fleet.set_node(evolve(node, agent_labels={"zone": "b"}))
    assert cluster.codes(request) == {"selector": 2}
    cluster.fleet.set_node(node)
    assert cluster.chosen(request) == "n1"
    cluster.fleet.set_listed("n1", False)
    assert cluster.codes(request) == {"not_listed": 1, "selector": 1}
    cluster.add(make_node("n3", labels={"zone": "a"}))
    assert cluster.chosen(request) == "n3"


def test_a_class_that_slept_long_catches_up() -> None:
    """More changes than the log keeps lead to a full look, not to a stale one."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    request = want()
    cluster.fleet.set_alive("n1", False)
    assert cluster.chosen(request) == "n2"
    for alive in (True, False) * 2000:
        cluster.fleet.set_alive("n2", alive)
    cluster.fleet.set_alive("n1", True)
    assert cluster.chosen(request) == "n1"


def test_the_change_log_is_bounded() -> None:
    """A reader gets each changed row once, or is told that too much was forgotten."""
    log = ChangeLog(limit=4)
    for row in (1, 2, 1):
        log.note(row)
    changed = log.since(1)
    assert changed is not None
    assert changed.tolist() == [1, 2]
    position = log.position
    for row in (3, 4, 5):
        log.note(row)
    assert log.since(0) is None
    assert log.since(position) is None
    assert log.since(log.position - 1) is not None


def test_classes_are_bounded_and_shared() -> None:
    """Requests that differ in amounts only share a class; the least used class is dropped."""
    cluster = Cluster(make_node())
    cache = ClassCache(cluster.fleet, limit=2)
    first = cache.get(want("w1", cpu=1))
    assert cache.get(want("w2", cpu=2)) is first
    cache.get(want(node_selector__a="1"))
    cache.get(want())
    cache.get(want(node_selector__a="2"))
    assert len(cache) == 2
    assert cache.get(want()) is first
    assert cache.get(want(node_selector__a="1")) is not None


def test_wishes_of_one_request_do_not_leak_into_its_class() -> None:
    """Pins, exclusions, tombstones, avoided nodes and credits hold for one decision only."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    cluster.charge("n2", cpu=3000)
    plain = want("w1", cpu=2000)
    cluster.fleet.add_tombstone("n1", "w2")
    for special in (
        evolve(plain, pinned_to="n2"),
        evolve(plain, avoid_node="n1"),
        evolve(plain, workload_id="w2"),
        evolve(plain, credit=("n2", Resources.of(cpu_millicores=3000))),
    ):
        cluster.chosen(special)
        cluster.chosen(special, excluding={"n1"})
        told = cluster.placer.explain(plain, NOW)
        assert (told.node_id, told.nodes_feasible, told.score) == ("n1", 1, 1.0)


def test_two_placers_may_share_a_fleet() -> None:
    """A placer keeps nothing that another one's decisions depend on."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    other = Placer(cluster.fleet, Reservations())
    for number in range(20):
        request = want(f"w{number}", cpu=300)
        decision = cluster.placed(request)
        assert other.place(request, NOW) == decision
        ledger = cluster.fleet.allocation(decision.node_id)
        cluster.fleet.set_allocation(ledger.charge(request.demand))
