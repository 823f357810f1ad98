from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from persys_core.control.requests import RegisterNode
from persys_core.model.node import Node, OperatorIntent, StoragePool, Taint
from persys_core.model.resources import CPU, Resources
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.workload import Allocation
from persys_core.nodes.operations import (
    MAX_OPERATOR_LABELS,
    MAX_TAINTS,
    Refusal,
    cordon,
    holder_refusal,
    overcommitted_dimensions,
    register,
    registration_refusal,
    set_label,
    taint,
    uncordon,
    untaint,
)

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T1 = T0 + timedelta(hours=1)
REQUEST = RegisterNode(
    node_id="n1",
    capacity=Resources.of(cpu_millicores=8000, memory_mb=16000),
    endpoint="10.0.0.1:7000",
    workload_types=frozenset({WorkloadType.CONTAINER}),
    reserved=Resources.of(cpu_millicores=500),
    storage_drivers=frozenset({"local", "nfs"}),
    storage_pools=(StoragePool("root", total_gb=100),),
    labels={"zone": "a"},
    agent_version="1.2",
    cluster_id="c1",
)
NODE = register(None, REQUEST, T0)


def change(node: Node) -> Node:
    return cordon(node, reason="new kernel", actor="ann", now=T1)


def test_a_taint_is_written_as_people_write_it() -> None:
    """Without a value there is no sign of one."""
    for mark, text in (
        (Taint("x"), "x:NoSchedule"),
        (Taint("x", "a", TaintEffect.NO_EXECUTE), "x=a:NoExecute"),
    ):
        assert str(mark) == text
        marked = taint(NODE, mark, reason="", actor="ann", now=T1)
        assert isinstance(marked, Node)
        assert marked.intent.reason == f"taint {text} set"


HELD = register(None, evolve(REQUEST, boot_id="a"), T0)
ELSEWHERE = "10.0.0.2:7000"


@pytest.mark.parametrize(
    ("boot_id", "endpoint", "alive", "ended", "refused"),
    [
        ("b", ELSEWHERE, True, (), True),
        ("b", HELD.endpoint, True, (), False),
        ("a", ELSEWHERE, True, (), False),
        ("b", ELSEWHERE, False, (), False),
        ("", ELSEWHERE, True, (), False),
        ("b", HELD.endpoint, True, ("b",), True),
        ("b", HELD.endpoint, False, ("b",), False),
    ],
    ids=["other", "restarted", "new-address", "moved", "field", "same-address", "comes-back"],
)
def test_who_beats_keeps_the_node_id(
    boot_id: str, endpoint: str, alive: bool, ended: tuple[str, ...], refused: bool
) -> None:
    """Only another life of another place is refused, and only while the holder lives."""
    request = evolve(REQUEST, boot_id=boot_id, endpoint=endpoint)
    lease = timedelta(seconds=30)
    found = holder_refusal(HELD, request, alive=alive, ended_boots=ended, lease=lease)
    assert (found is not None) == refused
    if found is not None:
        told = (HELD.endpoint, endpoint, "PERSYS_NODE_ID", "30 s", "stop the other one first")
        assert [each for each in told if each not in found.message] == []
        assert "node remove" not in found.message  # would move the work of the rightful one
    for holder in (None, NODE):  # nobody, and one that said no boot id
        assert holder_refusal(holder, request, alive=True, ended_boots=(), lease=lease) is None


def test_a_registration_is_taken_over_field_by_field() -> None:
    """Every fact that the node tells of itself stands in its record."""
    facts = {name: getattr(NODE, name) for name in ("capacity", "endpoint", "workload_types")}
    assert facts == {name: getattr(REQUEST, name) for name in facts}
    assert NODE.id == "n1"
    assert NODE.reserved == REQUEST.reserved
    assert NODE.storage_drivers == REQUEST.storage_drivers
    assert NODE.storage_pools == REQUEST.storage_pools
    assert NODE.agent_labels == {"zone": "a"}
    assert (NODE.agent_version, NODE.cluster_id) == ("1.2", "c1")
    assert (NODE.registered_at, NODE.intent) == (T0, OperatorIntent())


def test_registering_again_with_the_same_facts_writes_nothing() -> None:
    """A hot loop of re-registrations gives back the very record that exists (decisions §2.8)."""
    assert register(NODE, REQUEST, T1) is NODE


def test_registering_again_keeps_what_the_operator_wants() -> None:
    """Cordon, drain, taints and the operator's labels outlive a restart of the agent (D01)."""
    intent = OperatorIntent(True, True, "r", "ann", T0, (Taint("gpu"),), {"zone": "b"})
    known = evolve(NODE, intent=intent)
    again = register(known, evolve(REQUEST, endpoint="10.0.0.2:7000"), T1)
    assert again.intent == intent
    assert again.endpoint == "10.0.0.2:7000"
    assert again.registered_at == T0
    assert again.labels["zone"] == "b"


def test_a_node_may_shrink_and_is_shown_overcommitted() -> None:
    """A smaller capacity is accepted; what is committed beyond it has a name (P01)."""
    small = register(
        NODE, evolve(REQUEST, capacity=Resources.of(cpu_millicores=2000, memory_mb=9000)), T1
    )
    allocation = Allocation("n1", Resources.of(cpu_millicores=1501, memory_mb=9000))
    assert overcommitted_dimensions(small, allocation) == (CPU,)
    assert overcommitted_dimensions(NODE, allocation) == ()


@pytest.mark.parametrize(
    ("capacity", "reserved", "code"),
    [
        (Resources.of(memory_mb=100), Resources(), "no_capacity"),
        (Resources.of(cpu_millicores=100), Resources(), "no_capacity"),
        (
            Resources.of(cpu_millicores=100, memory_mb=100),
            Resources.of(memory_mb=101),
            "reserved_above_capacity",
        ),
    ],
)
def test_senseless_machines_are_refused(
    capacity: Resources, reserved: Resources, code: str
) -> None:
    """A node without cpu or memory, or that reserves more than it has, cannot join."""
    refusal = registration_refusal(evolve(REQUEST, capacity=capacity, reserved=reserved))
    assert refusal is not None
    assert refusal.code == code
    assert "100" in refusal.message


def test_sensible_machines_are_not_refused() -> None:
    """An ordinary node may join."""
    assert registration_refusal(REQUEST) is None


def test_cordon_says_who_and_why_and_changes_nothing_else() -> None:
    """Only the operator's intent changes, with its author, reason and time."""
    cordoned = change(NODE)
    assert cordoned.intent == OperatorIntent(True, False, "new kernel", "ann", T1)
    assert evolve(cordoned, intent=NODE.intent) == NODE
    assert not cordoned.is_schedulable


def test_cordoning_twice_writes_once() -> None:
    """The second cordon gives back the record, with the first one's reason."""
    cordoned = change(NODE)
    assert cordon(cordoned, reason="other", actor="bob", now=T1) is cordoned


def test_uncordon_returns_the_node_to_service() -> None:
    """New work may come again, and a default reason is given."""
    node = uncordon(change(NODE), reason="", actor="ann", now=T1)
    assert isinstance(node, Node)
    assert node.is_schedulable
    assert node.intent.reason == "node returned to service"


def test_uncordon_of_what_is_not_cordoned_writes_nothing() -> None:
    """Asking for what is so already gives back the record."""
    assert uncordon(NODE, reason="", actor="ann", now=T1) is NODE


def test_uncordon_does_not_undo_a_drain() -> None:
    """A draining node stays so, and the refusal says what to do instead (D01)."""
    draining = evolve(NODE, intent=OperatorIntent(cordoned=True, draining=True))
    refusal = uncordon(draining, reason="", actor="ann", now=T1)
    assert isinstance(refusal, Refusal)
    assert "undrain" in refusal.message


def test_a_node_has_so_many_taints_and_no_more() -> None:
    """One too many is refused with the way out; one that is there may still be changed."""
    node = NODE
    for number in range(MAX_TAINTS):
        marked = taint(node, Taint(f"k{number}"), reason="", actor="ann", now=T1)
        assert isinstance(marked, Node)
        node = marked
    refused = taint(node, Taint("more"), reason="", actor="ann", now=T1)
    assert isinstance(refused, Refusal)
    assert refused.code == "too_many_taints"
    assert 'node "n1" has 64 taints' in refused.message
    assert "take one away" in refused.message
    assert isinstance(taint(node, Taint("k0", "new"), reason="", actor="ann", now=T1), Node)
    fewer = untaint(node, "k1", None, reason="", actor="ann", now=T1)
    assert isinstance(taint(fewer, Taint("more"), reason="", actor="ann", now=T1), Node)


def test_a_node_has_so_many_operator_labels_and_no_more() -> None:
    """One too many is refused with the way out; the agent's own labels do not count."""
    node = evolve(NODE, agent_labels={f"a{number}": "x" for number in range(300)})
    for number in range(MAX_OPERATOR_LABELS):
        marked = set_label(node, f"k{number}", "v", actor="ann", now=T1)
        assert isinstance(marked, Node)
        node = marked
    refused = set_label(node, "more", "v", actor="ann", now=T1)
    assert isinstance(refused, Refusal)
    assert refused.code == "too_many_labels"
    assert 'node "n1" has 256 operator labels' in refused.message
    assert isinstance(set_label(node, "k0", "new", actor="ann", now=T1), Node)
