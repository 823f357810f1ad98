"""Who is feasible: each reason by itself, their order, and what a node is said to lack."""

from __future__ import annotations

from itertools import pairwise

import pytest
from attrs import evolve

from persys_core.model.node import OperatorIntent, StoragePool
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_core.placement.explain import NodeRejection, ReasonCode
from persys_core.placement.request import PlacementRequest
from tests.unit.placement.cluster import NOW, Cluster, make_node, want


def rejection(cluster: Cluster, request: PlacementRequest) -> NodeRejection:
    """What is said of the only rejected node."""
    (reason,) = cluster.placer.explain(request, NOW).reasons
    (example,) = reason.examples
    return example


def said(cluster: Cluster, request: PlacementRequest) -> tuple[str, str]:
    """The code and detail of the only rejected node."""
    told = rejection(cluster, request)
    return told.code.value, told.detail


def test_reserved_capacity_is_subtracted_once() -> None:
    """P01: of 8000 with 1000 reserved, 7000 fit and 7001 do not, for want of cpu."""
    node = evolve(make_node(cpu=8000), reserved=Resources.of(cpu_millicores=1000))
    cluster = Cluster(node)
    assert cluster.chosen(want(cpu=7000)) == "n1"
    refused = rejection(cluster, want(cpu=7001))
    assert (refused.code, refused.asked, refused.free) == (ReasonCode.CPU, 7001, 7000)
    cluster.add(evolve(node, reserved=Resources.of(cpu_millicores=2000)))
    assert rejection(cluster, want(cpu=7001)).free == 6000


def test_measured_use_never_turns_away() -> None:
    """A node that reports to be full takes what its ledger has room for."""
    cluster = Cluster(make_node(cpu=4000, memory=8000))
    cluster.report("n1", cpu=4000, memory=8000)
    assert cluster.chosen(want(cpu=4000, memory=8000)) == "n1"


def test_only_asked_dimensions_count() -> None:
    """A node above its capacity in memory takes work that asks for cpu alone."""
    cluster = Cluster(make_node(memory=8000))
    cluster.charge("n1", memory=9000)
    assert cluster.chosen(want(cpu=1000)) == "n1"
    refused = rejection(cluster, want(memory=1))
    assert (refused.code, refused.free, refused.unit) == (ReasonCode.MEMORY, -1000, "MB")


def test_a_new_dimension_needs_no_new_code() -> None:
    """GPUs are counted like everything else; the reason names them."""
    node = make_node()
    cluster = Cluster(evolve(node, capacity=node.capacity + Resources({"gpu": 2})))
    request = want()
    assert cluster.chosen(evolve(request, demand=Resources({"gpu": 2}))) == "n1"
    refused = rejection(cluster, evolve(request, demand=Resources({"gpu": 3})))
    assert (refused.code, refused.detail, refused.free) == (ReasonCode.RESOURCE, "gpu", 2)


def test_pools_are_checked_where_the_node_has_them() -> None:
    """A wish for a pool counts against the node's own pool, with what is charged there."""
    pools = (StoragePool("root", "local", 10), StoragePool("big", "nfs", 100))
    cluster = Cluster(make_node("n1", pools=pools), make_node("n2", pools=pools[1:]))
    request = evolve(want(), demand=Resources({"disk": 20, "disk:local": 20}))
    assert cluster.chosen(request) == "n2"
    refused = rejection(cluster, request)
    assert (refused.node_id, refused.detail, refused.free) == ("n1", "disk:root", 10)


def test_two_wishes_for_one_pool_need_room_for_both() -> None:
    """Each alone fits; together they do not."""
    cluster = Cluster(make_node(pools=(StoragePool("root", "local", 10),)))
    one = evolve(want(), demand=Resources({"disk": 6, "disk:local": 6}))
    both = evolve(want(), demand=Resources({"disk:root": 6, "disk:local": 6}))
    assert cluster.chosen(one) == "n1"
    assert said(cluster, both) == ("resource", "disk:root")


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ("", False),
        ("gpu", True),
        ("gpu=true", True),
        ("gpu=false", False),
        ("gpu=true:NoSchedule", True),
        ("gpu:NoExecute", False),
        ("other", False),
    ],
)
def test_tolerations(tolerations: str, fits: bool) -> None:
    """A toleration covers its key, and value and effect where it names them."""
    cluster = Cluster(make_node(taints=("gpu=true:NoSchedule",)))
    assert (cluster.chosen(want(tolerations=tolerations)) == "n1") is fits


def test_every_blocking_taint_must_be_tolerated() -> None:
    """One toleration does not excuse another taint; NoExecute blocks too, Prefer does not."""
    cluster = Cluster(make_node(taints=("a", "b:NoExecute", "c:PreferNoSchedule")))
    assert said(cluster, want()) == ("taint", "a:NoSchedule, b:NoExecute")
    assert said(cluster, want(tolerations="a")) == ("taint", "b:NoExecute")
    assert cluster.chosen(want(tolerations="a,b")) == "n1"


def test_selector_needs_every_label() -> None:
    """The reason names the labels that do not match and what the node has instead."""
    cluster = Cluster(make_node(labels={"disk": "hdd", "zone": "a"}))
    assert cluster.chosen(want(node_selector__zone="a")) == "n1"
    request = want(node_selector__zone="a", node_selector__disk="ssd", node_selector__gpu="1")
    assert said(cluster, request) == (
        "selector", "disk=ssd (node has hdd), gpu=1 (node has no such label)",
    )  # fmt: skip


def test_operator_labels_win() -> None:
    """Selectors see the agent's labels overlaid by the operator's."""
    node = evolve(make_node(labels={"zone": "a"}), intent=OperatorIntent(labels={"zone": "b"}))
    assert Cluster(node).chosen(want(node_selector__zone="b")) == "n1"


@pytest.mark.parametrize(
    ("advertised", "asked", "fits"),
    [
        (WorkloadType.CONTAINER, WorkloadType.CONTAINER, True),
        (WorkloadType.CONTAINER, WorkloadType.VM, False),
        (WorkloadType.VM, WorkloadType.MICROVM, True),
        (WorkloadType.MICROVM, WorkloadType.VM, False),
    ],
)
def test_types(advertised: WorkloadType, asked: WorkloadType, fits: bool) -> None:
    """A node runs what it advertises, and microVMs where it runs VMs."""
    cluster = Cluster(evolve(make_node(), workload_types=frozenset({advertised})))
    request = evolve(want(), type=asked)
    assert (cluster.chosen(request) == "n1") is fits
    if not fits:
        assert said(cluster, request) == ("workload_type", f"{asked} (node runs {advertised})")


@pytest.mark.parametrize("asked", WorkloadType)
def test_a_node_that_offers_nothing_takes_nothing(asked: WorkloadType) -> None:
    """Defect D6: no list of types is not a list of all types but one."""
    cluster = Cluster(evolve(make_node(), workload_types=frozenset()))
    request = evolve(want(), type=asked)
    assert cluster.chosen(request) != "n1"
    assert said(cluster, request)[0] == "workload_type"


@pytest.mark.parametrize(
    ("drivers", "labels", "fits"),
    [
        (set(), {}, False),
        ({"ceph-rbd"}, {}, True),
        ({"ceph_rbd"}, {}, True),
        (set(), {"storage.ceph_rbd": "true"}, True),
        (set(), {"storage.ceph-rbd": "false"}, False),
        ({"nfs"}, {}, False),
    ],
)
def test_storage_drivers(drivers: set[str], labels: dict[str, str], fits: bool) -> None:
    """A driver is advertised or labelled, in either spelling."""
    cluster = Cluster(evolve(make_node(labels=labels), storage_drivers=frozenset(drivers)))
    request = evolve(want(), drivers=frozenset({"ceph-rbd"}))
    assert (cluster.chosen(request) == "n1") is fits


def test_anti_affinity_is_about_others() -> None:
    """A node that runs another workload with the label is out; one's own copy is no rival."""
    cluster = Cluster(make_node("n1"))
    cluster.fleet.place_labels("w1", "n1", {"app": "web"})
    request = want("w1", anti_affinity="app=web")
    assert cluster.chosen(request) == "n1"
    cluster.fleet.place_labels("w2", "n1", {"app": "web"})
    assert said(cluster, request) == ("anti_affinity", "app=web")
    cluster.fleet.place_labels("w2", "n1", {"app": "db"})
    assert cluster.chosen(request) == "n1"


def test_a_workload_that_left_is_no_rival() -> None:
    """Labels move with their workload and end with it."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    request = want("w1", anti_affinity="app=web")
    cluster.fleet.place_labels("w2", "n1", {"app": "web"})
    assert cluster.chosen(request) == "n2"
    cluster.fleet.place_labels("w2", "n2", {"app": "web"})
    assert cluster.chosen(request) == "n1"
    cluster.fleet.remove_labels("w2")
    cluster.fleet.remove_labels("w2")
    assert cluster.codes(request) == {}


def test_local_data_pins() -> None:
    """S03: with its data on n1, no other node will do, and the reason says where it is."""
    cluster = Cluster(make_node("n1"), make_node("n2"))
    request = evolve(want(), pinned_to="n1")
    assert cluster.chosen(request) == "n1"
    assert said(cluster, request) == ("local_data", "local volume data is on n1")
    cluster.fleet.set_alive("n1", False)
    assert "local volume data is on n1 (NotReady)" in cluster.chosen(request)
    cluster.fleet.remove_node("n1")
    assert "local volume data is on n1 (not registered)" in cluster.chosen(request)


def test_tombstones_are_per_workload() -> None:
    """A node that owes the deletion of w1 takes any other workload, and w1 afterwards."""
    cluster = Cluster(make_node())
    cluster.fleet.add_tombstone("n1", "w1")
    assert said(cluster, want("w1"))[0] == "tombstone"
    assert cluster.chosen(want("w2")) == "n1"
    cluster.fleet.remove_tombstone("n1", "w1")
    assert cluster.chosen(want("w1")) == "n1"


def test_exclusion_by_wish_and_by_race() -> None:
    """Nodes that the user excluded and nodes that were just lost to others count as one reason."""
    cluster = Cluster(make_node("n1"), make_node("n2"), make_node("n3"))
    request = want(exclude_nodes="n1")
    assert cluster.chosen(request, excluding={"n2"}) == "n3"
    assert cluster.chosen(request, excluding={"n2", "n3"}) == "0/3 nodes: 3 excluded"


def test_nodes_that_take_no_work() -> None:
    """Not alive, not listed, cordoned and draining are told apart."""
    cluster = Cluster(
        evolve(make_node("n1"), intent=OperatorIntent(cordoned=True)),
        evolve(make_node("n2"), intent=OperatorIntent(draining=True)),
    )
    cluster.fleet.set_node(make_node("n3"))
    cluster.fleet.set_node(make_node("n4"))
    cluster.fleet.set_alive("n4", True)
    expected = {"node_not_ready": 1, "not_listed": 1, "cordoned": 1, "draining": 1}
    assert cluster.codes(want()) == expected


def test_the_first_failing_check_is_reported() -> None:
    """Mending the reported reason uncovers the next one, in the order of ReasonCode."""
    cluster = Cluster()
    bad = evolve(
        make_node(cpu=0, memory=0, pools=(), taints=("t",)),
        workload_types=frozenset({WorkloadType.VM}),
    )
    bad = evolve(bad, intent=evolve(bad.intent, cordoned=True, draining=True))
    request = evolve(
        want("w1", 1, 1, 1, node_selector__a="b", exclude_nodes="n1", anti_affinity="app=web"),
        drivers=frozenset({"nfs"}),
        pinned_to="n2",
    )
    cluster.fleet.set_node(bad)
    cluster.fleet.place_labels("w2", "n1", {"app": "web"})
    cluster.fleet.add_tombstone("n1", "w1")
    seen = [said(cluster, request)[0]]

    def look() -> None:
        seen.append(said(cluster, request)[0])

    cluster.fleet.set_alive("n1", True)
    look()
    cluster.fleet.set_listed("n1", True)
    look()
    for intent in (
        OperatorIntent(draining=True, taints=bad.intent.taints),
        OperatorIntent(taints=bad.intent.taints),
        OperatorIntent(),
        OperatorIntent(labels={"a": "b"}),
    ):
        bad = evolve(bad, intent=intent)
        cluster.fleet.set_node(bad)
        look()
    for mended in (
        evolve(bad, workload_types=frozenset({WorkloadType.CONTAINER})),
        evolve(
            bad,
            workload_types=frozenset({WorkloadType.CONTAINER}),
            storage_drivers=frozenset({"nfs"}),
        ),
    ):
        cluster.fleet.set_node(mended)
        look()
    request = evolve(request, constraints=evolve(request.constraints, exclude_nodes=frozenset()))
    look()
    cluster.fleet.remove_labels("w2")
    look()
    request = evolve(request, pinned_to="")
    look()
    cluster.fleet.remove_tombstone("n1", "w1")
    look()
    request = evolve(request, demand=Resources.of(memory_mb=1, disk_gb=1))
    look()
    request = evolve(request, demand=Resources.of(disk_gb=1))
    look()
    request = evolve(request, demand=Resources({"gpu": 1}))
    look()
    order = [code.value for code in ReasonCode]
    assert all(order.index(one) < order.index(other) for one, other in pairwise(seen)), seen
    assert seen == order[: len(seen)]
    assert seen[-1] == "resource"
