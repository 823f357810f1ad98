"""Drains, taints and labels over the wire: what reaches the core, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest

from persys_core.control.answers import NodeRemoval
from persys_core.control.requests import (
    DrainNode,
    NodeIntentChange,
    NodeLabelChange,
    NodeTaintChange,
    RemoveNode,
)
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError
from persys_core.model.node import DrainOrder, OperatorIntent
from persys_core.model.states import TaintEffect
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.node_operations_out import label_deleted_words, taint_words
from tests.unit.server.fakes import NOW, FakeScheduler, Loopback, loopback, node_view, progress
from tests.unit.server.test_servicer import refused

pytestmark = pytest.mark.slow

Call = Callable[[Loopback], Awaitable[Any]]
N1 = NodeIntentChange("n1")


def drain(**fields: Any) -> Call:
    return lambda at: at.stub.DrainNode(pb.DrainNodeRequest(**({"node_id": "n1"} | fields)))


def undrain(**fields: Any) -> Call:
    return lambda at: at.stub.UndrainNode(pb.UndrainNodeRequest(**({"node_id": "n1"} | fields)))


def taint(node_id: str = "n1", **fields: Any) -> Call:
    request = pb.TaintNodeRequest(
        node_id=node_id, taint=pb.NodeTaint(**({"key": "gpu", "value": "a100"} | fields))
    )
    return lambda at: at.stub.TaintNode(request)


def untaint(**fields: Any) -> Call:
    request = pb.UntaintNodeRequest(**({"node_id": "n1", "key": "gpu"} | fields))
    return lambda at: at.stub.UntaintNode(request)


def set_label(**fields: Any) -> Call:
    request = pb.SetNodeLabelRequest(**({"node_id": "n1", "key": "rack", "value": "r2"} | fields))
    return lambda at: at.stub.SetNodeLabel(request)


def delete_label(**fields: Any) -> Call:
    request = pb.DeleteNodeLabelRequest(**({"node_id": "n1", "key": "rack"} | fields))
    return lambda at: at.stub.DeleteNodeLabel(request)


def remove(**fields: Any) -> Call:
    return lambda at: at.stub.RemoveNode(pb.RemoveNodeRequest(**({"node_id": "n1"} | fields)))


def ask_progress(node_id: str = "n1") -> Call:
    request = pb.GetDrainProgressRequest(node_id=node_id)
    return lambda at: at.stub.GetDrainProgress(request)


ORDERS = [drain(), undrain(), taint(), untaint(), set_label(), delete_label(), remove()]


@pytest.mark.asyncio
async def test_a_drain_answers_what_is_to_move() -> None:
    """The whole order goes in; relocated_workloads counts what has yet to move."""
    async with loopback() as at:
        answer = await drain(reason="disk", deadline_seconds=300, force=True)(at)
        change = NodeIntentChange("n1", "disk")
        order = DrainNode(change, timedelta(minutes=5), force=True)
        assert at.scheduler.asked == [order, "n1"]
        assert (answer.accepted, answer.relocated_workloads) == (True, 3)
        assert answer.node.draining
        assert answer.message.startswith("draining: 3 workloads to move, 1 with no other place")


@pytest.mark.parametrize(
    ("earlier", "words"),
    [
        (None, ""),
        (OperatorIntent(draining=True, drain=DrainOrder(NOW)), ""),
        (OperatorIntent(draining=True, reason="disk", drain=DrainOrder(NOW)),
         'no deadline, reason "disk"'),
        (OperatorIntent(draining=True, drain=DrainOrder(NOW, NOW, force=True)),
         f"deadline {NOW:%Y-%m-%dT%H:%M:%SZ}, what is left then is stopped, no reason"),
        (OperatorIntent(draining=True, drain=DrainOrder(NOW, NOW)),
         f"deadline {NOW:%Y-%m-%dT%H:%M:%SZ}, what is left then is left in place, no reason"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_repeated_drain_says_what_it_replaced(
    earlier: OperatorIntent | None, words: str
) -> None:
    """Deadline, force and reason of the earlier order, where they differ from the new ones."""
    async with loopback(FakeScheduler(replaced_intent=earlier)) as at:
        assert (await drain()(at)).replaced == words


@pytest.mark.asyncio
async def test_a_drain_without_a_deadline_waits() -> None:
    """0 seconds is no deadline; an empty node has nothing to move."""
    nothing = FakeScheduler(progress_shown=progress(remaining=0, blocked=()))
    async with loopback(nothing) as at:
        answer = await drain()(at)
        assert at.scheduler.asked[0] == DrainNode(N1)
        assert answer.message == "draining: nothing has to move"


@pytest.mark.asyncio
async def test_a_drain_is_ended() -> None:
    """The reason goes in, the node as it is then comes back."""
    async with loopback() as at:
        answer = await undrain(reason="done")(at)
        assert at.scheduler.asked == [NodeIntentChange("n1", "done")]
        assert (answer.accepted, answer.node.draining) == (True, False)
        assert answer.message.startswith("in service")


@pytest.mark.parametrize(
    ("removal", "words"),
    [
        (NodeRemoval(True), "removed"),
        (NodeRemoval(True, beats=True),
         "removed; its agent still beats and will register again: stop it"),
        (NodeRemoval(True, ("a", "b"), ("c",)),
         "removed; it had 2 assigned (a, b); 1 not yet deleted there (c): what is to run is placed"
         " elsewhere"),
        (NodeRemoval(False, tuple("abcdefg")),
         "n1 has workloads: 7 assigned (a, b, c, d, e, …); drain the node, stop or delete what"
         " rests there, or remove it by force if the machine is gone for good"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_removal_says_what_stood_in_the_way(removal: NodeRemoval, words: str) -> None:
    """The order goes in; the workloads come back by name, and what to do next."""
    async with loopback(FakeScheduler(removal_shown=removal)) as at:
        answer = await remove(reason="burnt", force=True)(at)
        assert at.scheduler.asked == [RemoveNode(NodeIntentChange("n1", "burnt"), force=True)]
        assert (answer.accepted, answer.message) == (removal.accepted, words)
        assert list(answer.workload_ids) == [*removal.assigned, *removal.owed]


@pytest.mark.asyncio
async def test_the_progress_of_a_drain_names_what_blocks_it() -> None:
    """Every number, the deadline, and each blocker with its code and reason."""
    async with loopback(FakeScheduler(progress_shown=progress(stopped=4, owed=("w5",)))) as at:
        answer = await ask_progress()(at)
        assert (answer.moved, answer.remaining, answer.moving) == (2, 3, 1)
        assert answer.stopped == 4
        assert list(answer.owed_workload_ids) == ["w5"]
        blocker = pb.DrainBlocker(workload_id="big", code="cpu", reason="0/1 nodes: 1 cpu")
        assert list(answer.blocked) == [blocker]
        assert answer.deadline_at.ToSeconds() == int(NOW.timestamp())
        assert not answer.force


@pytest.mark.asyncio
async def test_no_deadline_is_left_unset() -> None:
    """A drain that may take as long as it takes shows no instant."""
    async with loopback(FakeScheduler(progress_shown=progress(deadline_at=None))) as at:
        assert not (await ask_progress()(at)).HasField("deadline_at")


@pytest.mark.parametrize(
    ("effect", "meant"),
    [
        ("", TaintEffect.NO_SCHEDULE),
        ("NoSchedule", TaintEffect.NO_SCHEDULE),
        (" prefernoschedule ", TaintEffect.PREFER_NO_SCHEDULE),
        ("NoExecute", TaintEffect.NO_EXECUTE),
    ],
)
@pytest.mark.asyncio
async def test_a_taint_has_one_of_three_effects(effect: str, meant: TaintEffect) -> None:
    """Decisions, values: three effects in any case, NoSchedule where none is given."""
    async with loopback() as at:
        answer = await taint(effect=effect)(at)
        assert at.scheduler.asked == [NodeTaintChange(N1, "gpu", "a100", meant)]
        assert list(answer.node.taints) == [pb.NodeTaint(key="gpu", value="a100", effect=meant)]
        assert answer.message.startswith(f"tainted gpu=a100:{meant}: ")


def test_the_words_of_a_taint_say_what_becomes_of_running_work() -> None:
    """Only NoExecute moves what runs; a taint without a value is written without a sign."""
    assert taint_words(NodeTaintChange(N1, "gpu")).startswith("tainted gpu:NoSchedule: ")
    words = {
        effect: taint_words(NodeTaintChange(N1, "gpu", effect=effect)) for effect in TaintEffect
    }
    assert "moves away" in words[TaintEffect.NO_EXECUTE]
    assert "stays" in words[TaintEffect.NO_SCHEDULE]
    assert "no other node" in words[TaintEffect.PREFER_NO_SCHEDULE]


@pytest.mark.parametrize(
    ("effect", "meant", "words"),
    [("", None, "any effect"), ("noexecute", TaintEffect.NO_EXECUTE, "effect NoExecute")],
)
@pytest.mark.asyncio
async def test_an_untaint_without_effect_takes_all_of_the_key(
    effect: str, meant: TaintEffect | None, words: str
) -> None:
    """What older clients mean by the empty effect is among them; the answer says it."""
    async with loopback() as at:
        answer = await untaint(effect=effect)(at)
        assert at.scheduler.asked == [NodeTaintChange(N1, "gpu", effect=meant)]
        assert answer.message == f'the node has no taint "gpu" of {words} now'
        assert not answer.node.taints


@pytest.mark.parametrize("value", ["r2", "", "two words", "ü"])
@pytest.mark.asyncio
async def test_a_label_is_set(value: str) -> None:
    """Any plain text is a value, the empty one too."""
    async with loopback() as at:
        answer = await set_label(value=value)(at)
        assert at.scheduler.asked == [NodeLabelChange(N1, "rack", value)]
        assert answer.node.labels["rack"] == value
        assert answer.message.startswith('label "rack" is now ')


@pytest.mark.asyncio
async def test_a_label_is_taken_away() -> None:
    """No value means that it goes, which is not the same as an empty one."""
    async with loopback() as at:
        answer = await delete_label()(at)
        assert at.scheduler.asked == [NodeLabelChange(N1, "rack", None)]
        assert answer.message == 'the node has no label "rack" now'


def test_a_label_of_the_agent_shows_again() -> None:
    """The answer does not say that a label is gone which the node still has."""
    view = node_view(intent=OperatorIntent(labels={"rack": "r1"}))
    words = label_deleted_words(NodeLabelChange(N1, "rack"), view)
    assert words == 'label "rack" is its agent\'s again: "r1"'


LONG = "a" * 254
WRONG: list[tuple[Call, str]] = [
    *((order(node_id=""), "node_id")
      for order in (drain, undrain, taint, untaint, set_label, delete_label, ask_progress, remove)),
    (drain(reason="a\0b"), "reason"),
    (drain(deadline_seconds=-1), "deadline_seconds"),
    (drain(deadline_seconds=2**62), "deadline_seconds"),
    (drain(force=True), "force"),
    (undrain(reason="a\0b"), "reason"),
    (remove(reason="a\0b"), "reason"),
    *((taint(key=key), "taint.key") for key in ("", "a b", "a=b", "a:b", "a,b", "-a", LONG)),
    *((taint(value=value), "taint.value") for value in ("a b", "a:b", "a,b", "a=b", LONG)),
    (taint(effect="NoRun"), "taint.effect"),
    (untaint(key=" "), "key"),
    (untaint(key=LONG), "key"),
    (untaint(effect="all"), "effect"),
    *((set_label(key=key), "key") for key in ("", "a b", "a=b", LONG)),
    *((set_label(value=value), "value") for value in ("a\nb", " a", LONG)),
    (delete_label(key=""), "key"),
    (delete_label(key="a\0"), "key"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "field"), WRONG)
@pytest.mark.asyncio
async def test_wrong_orders_never_reach_the_core(call: Call, field: str) -> None:
    """A01, R4: INVALID_ARGUMENT names the field; nothing is asked of the core."""
    async with loopback() as at:
        error = await refused(call(at))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"{field}: " in str(error.details())
        assert at.scheduler.asked == []


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (FrozenError("store away"), grpc.StatusCode.UNAVAILABLE),
        (NotFoundError("node", "n1"), grpc.StatusCode.NOT_FOUND),
        (RefusedError("not now"), grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.asyncio
async def test_every_order_is_refused_with_the_right_code(
    order: Call, raised: Exception, code: grpc.StatusCode
) -> None:
    """Frozen, unknown and not permitted are three answers, the same as for a cordon."""
    async with loopback(FakeScheduler(error=raised)) as at:
        error = await refused(order(at))
        assert error.code() is code
        assert str(raised) in str(error.details())


@pytest.mark.asyncio
async def test_the_progress_of_an_unknown_node_is_not_found() -> None:
    """Nothing is known of it, which is not the same as nothing left to move."""
    async with loopback(FakeScheduler(error=NotFoundError("node", "n1"))) as at:
        error = await refused(ask_progress()(at))
        assert error.code() is grpc.StatusCode.NOT_FOUND
