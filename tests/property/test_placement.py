"""The fast placer equals the slow one after any sequence of changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias, TypeVar

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from persys_core.model.constraints import PlacementConstraints, SchedulingStrategy, Toleration
from persys_core.model.node import Node, OperatorIntent, StoragePool, Taint
from persys_core.model.resources import Resources
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.usage import NodeUsage
from persys_core.model.workload import Allocation
from persys_core.placement.demand import charge_for
from persys_core.placement.explain import ReasonCode
from persys_core.placement.placer import Placed
from persys_core.placement.request import PlacementRequest
from tests.unit.placement.cluster import NOW, Cluster, make_node
from tests.unit.placement.reference import ReferencePlacer, charge_of

NODE_IDS = [f"n{number}" for number in range(6)]
WORKLOAD_IDS = [f"w{number}" for number in range(4)]

T = TypeVar("T")


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    """The usual value in most draws: a cluster where everything is special places nothing."""
    return st.sampled_from([usual] * 8 * len(others) + list(others))


node_ids = st.sampled_from(NODE_IDS)
workload_ids = st.sampled_from(WORKLOAD_IDS)
often = mostly(True, False)
effects = st.sampled_from(list(TaintEffect))
rarely = mostly(False, True)
taints = st.builds(Taint, st.sampled_from(["gpu", "old"]), st.sampled_from(["", "a"]), effects)
labels = st.dictionaries(
    st.sampled_from(["zone", "disk", "storage.nfs", "storage.ceph_rbd"]),
    st.sampled_from(["a", "b", "true"]),
    max_size=3,
)
pool_lists = st.lists(
    st.builds(
        StoragePool,
        st.sampled_from(["root", "fast", "local"]),
        st.sampled_from(["local", "nvme"]),
        st.sampled_from([0, 10, 20]),
    ),
    max_size=3,
    unique_by=lambda pool: pool.name,
).map(tuple)
amounts = st.builds(
    Resources.of,
    cpu_millicores=st.sampled_from([0, 500, 500, 1000, 1000, 4000]),
    memory_mb=st.sampled_from([0, 1000, 1000, 2000, 2000, 8000]),
    disk_gb=mostly(0, 5, 20),
)
with_others = (
    amounts
    | amounts
    | amounts
    | st.builds(
        lambda base, others: base + Resources(others),
        amounts,
        st.dictionaries(
            st.sampled_from(["gpu", "disk:root", "disk:local", "disk:fast", "disk:nvme"]),
            st.sampled_from([1, 8]),
            max_size=2,
        ),
    )
)
workload_types = mostly(WorkloadType.CONTAINER, WorkloadType.VM, WorkloadType.MICROVM)
nodes = st.builds(
    lambda node, types, drivers, extra, reserved, intent: evolve(
        node,
        workload_types=types | {WorkloadType.CONTAINER},
        storage_drivers=drivers,
        capacity=node.capacity + extra,
        reserved=reserved,
        intent=intent,
    ),
    st.builds(
        make_node,
        node_ids,
        mostly(4000, 0, 2000),
        mostly(8000, 2000),
        labels,
        pools=pool_lists,
    ),
    st.frozensets(workload_types, max_size=2),
    st.frozensets(st.sampled_from(["local", "nfs", "ceph_rbd"]), max_size=2),
    st.sampled_from([Resources(), Resources({"gpu": 2})]),
    mostly(Resources(), Resources.of(cpu_millicores=1000, memory_mb=500)),
    st.builds(
        OperatorIntent,
        cordoned=rarely,
        draining=rarely,
        taints=mostly(0, 1, 2).flatmap(lambda count: st.tuples(*[taints] * count)),
        labels=st.sampled_from([{}, {}, {"zone": "b"}]),
    ),
)
constraints = st.builds(
    PlacementConstraints,
    node_selector=mostly({}, {"zone": "a"}, {"disk": "b", "zone": "b"}),
    tolerations=st.lists(
        st.builds(
            Toleration,
            st.sampled_from(["gpu", "old"]),
            st.sampled_from([None, "", "a"]),
            st.none() | effects,
        ),
        max_size=2,
    ).map(tuple),
    anti_affinity=st.sampled_from([{}, {}, {"app": "web"}, {"app": "web", "tier": "db"}]),
    spread_by=st.sampled_from(["", "", "zone"]),
    exclude_nodes=mostly(frozenset(), frozenset({"n1"})),
    strategy=st.sampled_from(list(SchedulingStrategy)),
)
requests = st.builds(
    PlacementRequest,
    workload_ids,
    workload_types,
    with_others,
    mostly(frozenset(), frozenset({"nfs"}), frozenset({"ceph-rbd"})),
    st.just(PlacementConstraints()) | constraints,
    pinned_to=mostly("", "n0"),
    avoid_node=mostly("", "n2"),
    credit=st.none() | st.tuples(node_ids, amounts),
)
exclusions = mostly(frozenset(), frozenset({"n0", "n3"}))


SMALL = Resources({"cpu": 500, "memory": 1000, "disk": 1, "gpu": 1, "disk:root": 1})


class Both:
    """The engine and the reference, told the same; ``now`` only goes forward."""

    def __init__(self) -> None:
        self.fast = Cluster()
        self.slow = ReferencePlacer()
        self.now = NOW

    def expect_equal(self, request: PlacementRequest, excluding: frozenset[str]) -> None:
        """Same choice, score, feasible nodes and tallies."""
        decision = self.fast.placer.place(request, self.now, excluding)
        choice = self.slow.choice(request, self.now, excluding)
        scores = self.slow.scores(request, self.now, excluding)
        if isinstance(decision, Placed):
            assert decision.node_id == choice
            assert abs(decision.score - scores[choice]) < 1e-12
            assert abs(decision.score - sum(decision.parts.values())) < 1e-12
        else:
            assert not choice
            self._expect_same_tally(request, excluding)
        ranked = self.fast.placer.candidates(request, self.now, len(NODE_IDS), excluding)
        assert {one.node_id for one in ranked} == scores.keys()
        self._expect_full_explanation(request)

    def _expect_same_tally(self, request: PlacementRequest, excluding: frozenset[str]) -> None:
        refused = self.fast.placer.place(request, self.now, excluding)
        assert not isinstance(refused, Placed)
        counted = {
            f"{one.code} {one.detail}" if one.code is ReasonCode.RESOURCE else one.code.value:
            one.nodes
            for one in refused.reasons
            if one.code is not ReasonCode.NO_NODES
        }  # fmt: skip
        assert counted == self.slow.tally(request, excluding)

    def _expect_full_explanation(self, request: PlacementRequest) -> None:
        told = self.fast.placer.explain(request, self.now)
        tally = self.slow.tally(request, ())
        assert sum(one.nodes for one in told.reasons) == sum(tally.values())
        assert told.nodes_considered == len(self.slow.nodes)
        assert told.nodes_feasible == told.nodes_considered - sum(tally.values())
        for reason in told.reasons:
            for example in reason.examples:
                node = self.slow.nodes[example.node_id]
                assert self.slow.first_reason(request, node, ()).split()[0] == example.code


Step: TypeAlias = Callable[[Both], None]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One change, told to both."""
    kind = draw(st.sampled_from(list(CHANGES)))
    return CHANGES[kind](draw)


def _put_node(draw: st.DrawFn) -> Step:
    node, alive, listed = draw(nodes), draw(often), draw(often)

    return lambda both: _know(both, node, alive, listed)


def _know(both: Both, node: Node, alive: bool, listed: bool) -> None:
    both.fast.fleet.set_node(node)
    both.slow.nodes[node.id] = node
    _mark(both, node.id, alive, listed)


def _mark(both: Both, node_id: str, alive: bool, listed: bool) -> None:
    both.fast.fleet.set_alive(node_id, alive)
    both.fast.fleet.set_listed(node_id, listed)
    for known, holds in ((both.slow.alive, alive), (both.slow.listed, listed)):
        (known.add if holds else known.discard)(node_id)


def _flag_node(draw: st.DrawFn) -> Step:
    node_id, alive, listed = draw(node_ids), draw(often), draw(often)
    return lambda both: _mark(both, node_id, alive, listed)


def _remove_node(draw: st.DrawFn) -> Step:
    node_id = draw(node_ids)

    def step(both: Both) -> None:
        both.fast.fleet.remove_node(node_id)
        both.slow.remove_node(node_id)

    return step


def _set_ledger(draw: st.DrawFn) -> Step:
    charged = draw(st.sampled_from([Resources(), SMALL, SMALL + SMALL]) | with_others)
    ledger = Allocation(draw(node_ids), charged, draw(st.integers(0, 3)))

    def step(both: Both) -> None:
        both.fast.fleet.set_allocation(ledger)
        both.slow.ledger[ledger.node_id] = ledger

    return step


def _report_use(draw: st.DrawFn) -> Step:
    node_id, used, age = draw(node_ids), draw(amounts), draw(st.sampled_from([0, 30, 90, 120]))

    def step(both: Both) -> None:
        usage = NodeUsage(node_id, used, both.now - timedelta(seconds=age))
        both.fast.fleet.set_usage(usage)
        both.slow.set_usage(usage)

    return step


def _pass_time(draw: st.DrawFn) -> Step:
    passed = timedelta(seconds=draw(st.sampled_from([1, 30, 90])))

    def step(both: Both) -> None:
        both.now = both.now + passed

    return step


def _tombstone(draw: st.DrawFn) -> Step:
    node_id, workload_id, stands = draw(node_ids), draw(workload_ids), draw(often)

    def step(both: Both) -> None:
        if stands:
            both.fast.fleet.add_tombstone(node_id, workload_id)
            both.slow.tombstones.add((node_id, workload_id))
        else:
            both.fast.fleet.remove_tombstone(node_id, workload_id)
            both.slow.tombstones.discard((node_id, workload_id))

    return step


def _label_workload(draw: st.DrawFn) -> Step:
    workload_id, node_id, placed = draw(workload_ids), draw(node_ids), draw(often)
    metadata = draw(st.sampled_from([{"app": "web"}, {"tier": "db"}, {"app": "x"}, {}]))

    def step(both: Both) -> None:
        if placed:
            both.fast.fleet.place_labels(workload_id, node_id, metadata)
            both.slow.labels[workload_id] = (node_id, metadata)
        else:
            both.fast.fleet.remove_labels(workload_id)
            both.slow.labels.pop(workload_id, None)

    return step


def _reserve(draw: st.DrawFn) -> Step:
    node_id, workload_id, held = draw(node_ids), draw(workload_ids), draw(amounts)
    kind = draw(st.sampled_from(["hold", "hold", "release", "clear"]))

    def step(both: Both) -> None:
        match kind:
            case "hold":
                both.fast.reservations.hold(node_id, workload_id, held, both.now)
                both.slow.held[node_id, workload_id] = (held, both.now)
            case "release":
                both.fast.reservations.release(node_id, workload_id)
                both.slow.held.pop((node_id, workload_id), None)
            case _:
                both.fast.reservations.clear()
                both.slow.held.clear()

    return step


def _place(draw: st.DrawFn) -> Step:
    request = draw(requests)

    def step(both: Both) -> None:
        decision = both.fast.placer.place(request, both.now)
        if not isinstance(decision, Placed):
            return
        ledger = both.fast.fleet.allocation(decision.node_id)
        node = both.slow.nodes[decision.node_id]
        charge = Resources(charge_of(request, node))
        assert charge == charge_for(request, node)
        both.fast.fleet.set_allocation(ledger.charge(charge))
        both.slow.ledger[node.id] = ledger.charge(charge)

    return step


CHANGES: dict[str, Callable[[st.DrawFn], Step]] = {
    "node": _put_node,
    "node again": _put_node,
    "flags": _flag_node,
    "removal": _remove_node,
    "ledger": _set_ledger,
    "use": _report_use,
    "time": _pass_time,
    "tombstone": _tombstone,
    "labels": _label_workload,
    "reservation": _reserve,
    "placement": _place,
    "placement again": _place,
}


@settings(max_examples=120)
@given(
    st.lists(nodes, min_size=4, max_size=6, unique_by=lambda node: node.id),
    st.lists(steps(), min_size=5, max_size=25),
    st.lists(st.tuples(requests, exclusions), min_size=2, max_size=5),
)
def test_fast_equals_slow(
    first: list[Node], changes: list[Step], asked: list[tuple[PlacementRequest, frozenset[str]]]
) -> None:
    """After any changes: same node, score, feasible set, reason per node and charge (P01)."""
    both = Both()
    for node in first:
        _know(both, node, alive=True, listed=True)
    for change in changes:
        change(both)
        for request, excluding in asked:
            both.expect_equal(request, excluding)
