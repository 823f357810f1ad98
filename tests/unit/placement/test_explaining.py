"""Every no explains itself: counted, in numbers, in one line."""

from __future__ import annotations

from attrs import evolve

from persys_core.model.constraints import PlacementConstraints
from persys_core.placement.explain import ReasonCode, Verdict
from tests.unit.placement.cluster import NOW, Cluster, make_node, want


def five_nodes() -> Cluster:
    """Five nodes, each of which lacks another thing."""
    cluster = Cluster(
        make_node("n1", cpu=1500, labels={"disk": "ssd"}),
        make_node("n2", memory=512, labels={"disk": "ssd"}),
        make_node("n3", labels={"disk": "hdd"}),
        make_node("n4", labels={"disk": "ssd"}, taints=("gpu=true",)),
        make_node("n5", labels={"disk": "ssd", "storage.nfs": "false"}),
    )
    for node_id in ("n1", "n2", "n3", "n4"):
        node = cluster.fleet.node(node_id)
        assert node is not None
        cluster.add(evolve(node, storage_drivers=frozenset({"nfs"})))
    return cluster


def test_five_nodes_five_reasons() -> None:
    """C01: distinct codes, with asked, free and unit where they are quantities."""
    request = evolve(
        want(cpu=2000, memory=1024, node_selector__disk="ssd"), drivers=frozenset({"nfs"})
    )
    told = five_nodes().placer.explain(request, NOW)
    assert told.verdict is Verdict.UNSCHEDULABLE
    assert (told.nodes_considered, told.nodes_feasible) == (5, 0)
    by_code = {reason.code: reason for reason in told.reasons}
    assert set(by_code) == {"taint", "selector", "storage_driver", "cpu", "memory"}
    assert all(reason.nodes == 1 for reason in told.reasons)
    cpu, memory = by_code[ReasonCode.CPU], by_code[ReasonCode.MEMORY]
    assert (cpu.asked, cpu.free_max, cpu.unit) == (2000, 1500, "millicores")
    assert (memory.asked, memory.free_max, memory.unit) == (1024, 512, "MB")
    assert [one.node_id for one in by_code[ReasonCode.TAINT].examples] == ["n4"]


def test_the_summary_has_the_most_frequent_first() -> None:
    """V02: counts per reason with its numbers, in one line."""
    cluster = Cluster(
        make_node("n1", cpu=1000),
        make_node("n2", cpu=1500),
        make_node("n3", cpu=500),
        make_node("n4", taints=("gpu=true",)),
        make_node("n5", labels={"disk": "hdd"}),
    )
    for node_id in ("n1", "n2", "n3", "n4"):
        node = cluster.fleet.node(node_id)
        assert node is not None
        cluster.add(evolve(node, agent_labels={"disk": "ssd"}))
    request = want(cpu=4000, node_selector__disk="ssd")
    expected = (
        "0/5 nodes: 3 cpu (asked 4000, at most 1500 millicores free),"
        " 1 taint gpu=true:NoSchedule, 1 selector disk=ssd"
    )
    assert cluster.chosen(request) == expected
    assert cluster.placer.explain(request, NOW).summary == expected


def test_a_thousand_nodes_are_one_short_line() -> None:
    """V02: the text names reasons, not nodes; the number of examples is bounded."""
    nodes = [make_node(f"n{n}", cpu=100, labels={"disk": "ssd"}) for n in range(700)]
    cluster = Cluster(*nodes, *(make_node(f"m{n}") for n in range(300)))
    told = cluster.placer.explain(want(cpu=200, node_selector__disk="ssd"), NOW, max_examples=2)
    assert told.summary == (
        "0/1000 nodes: 700 cpu (asked 200, at most 100 millicores free), 300 selector disk=ssd"
    )
    assert [len(reason.examples) for reason in told.reasons] == [2, 2]


def test_the_summary_is_bounded() -> None:
    """V02: at most 1 KiB, also in bytes, however long labels are; it still begins the same."""
    selector = {f"{'ä' * 60}{number}": "x" * 60 for number in range(20)}
    request = evolve(want(), constraints=PlacementConstraints(node_selector=selector))
    summary = Cluster(make_node()).chosen(request)
    assert 900 < len(summary.encode()) <= 1024
    assert summary.startswith("0/1 nodes: 1 selector ä")
    assert summary.endswith("...")


def test_no_nodes_is_a_reason() -> None:
    """C01: an empty cluster says so."""
    told = Cluster().placer.explain(want(), NOW)
    assert [reason.code for reason in told.reasons] == [ReasonCode.NO_NODES]
    assert "no nodes" in told.summary
    assert "no nodes" in Cluster().chosen(want())


def test_the_most_frequent_taints_are_named() -> None:
    """At most three, the most frequent first."""
    taints = (("a",), ("b",), ("b",), ("c", "b"), ("d",), ("e",))
    cluster = Cluster(*(make_node(f"n{n}", taints=each) for n, each in enumerate(taints)))
    assert cluster.chosen(want()) == ("0/6 nodes: 6 taint b:NoSchedule, a:NoSchedule, c:NoSchedule")


def test_a_placement_explains_itself_too() -> None:
    """Where it goes, what the score is made of, who else would do and who would not."""
    cluster = Cluster(make_node("n1"), make_node("n2"), make_node("n3", cpu=100))
    cluster.charge("n2", cpu=1000)
    told = cluster.placer.explain(want(cpu=1000), NOW)
    assert told.verdict is Verdict.PLACED
    assert told.node_id == "n1"
    assert told.score == sum(told.score_parts.values())
    assert told.summary.startswith("selected by placement score 1.0000 (")
    assert (told.nodes_considered, told.nodes_feasible) == (3, 2)
    assert [one.node_id for one in told.candidates] == ["n1", "n2"]
    assert [(reason.code, reason.nodes) for reason in told.reasons] == [(ReasonCode.CPU, 1)]


def test_the_reason_goes_when_the_cause_goes() -> None:
    """C01: what was unschedulable is placed once there is room, and nothing is said any more."""
    cluster = Cluster(make_node())
    cluster.charge("n1", cpu=4000)
    request = want(cpu=1)
    assert cluster.codes(request) == {"cpu": 1}
    cluster.charge("n1", cpu=3999)
    assert cluster.codes(request) == {}
    assert cluster.chosen(request) == "n1"
