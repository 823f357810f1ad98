"""Volumes, fences and given up data over the wire: what reaches the core, and what comes back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from attrs import evolve

from persys_core.control.answers import VolumeRelease, VolumeView
from persys_core.control.requests import NodeIntentChange, ReleaseVolume, VolumeFilter
from persys_core.model.errors import FrozenError, NotFoundError, RefusedError
from persys_core.model.node import Fence
from persys_core.model.volume import (
    Attachment,
    AttachmentPhase,
    RetainPolicy,
    Volume,
    VolumePhase,
)
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.nodes_out import node_view as node_shown
from persys_server.grpc.mapping.times import timestamp
from persys_server.grpc.mapping.volumes_out import volume_view as shown
from tests.unit.server.fakes import (
    NOW,
    FakeScheduler,
    Loopback,
    loopback,
    node_view,
    volume_view,
)
from tests.unit.server.test_servicer import refused

Call = Callable[[Loopback], Awaitable[Any]]
HELD = "held by workload w1 on n1 since 2026-03-04T05:06:07+00:00, not fenced"


def list_(**fields: Any) -> Call:
    return lambda at: at.stub.ListVolumes(pb.ListVolumesRequest(**fields))


def fence(**fields: Any) -> Call:
    values = {"node_id": "n1", "reason": "power cut"} | fields
    return lambda at: at.stub.FenceNode(pb.FenceNodeRequest(**values))


def release(**fields: Any) -> Call:
    values = {"volume_id": "nfs:data"} | fields
    return lambda at: at.stub.ReleaseVolume(pb.ReleaseVolumeRequest(**values))


def test_a_volume_is_shown_whole() -> None:
    """Every field of the record and of each attachment, and why it is held."""
    volume = Volume(
        "disk-1",
        "data",
        "ceph-rbd",
        NOW,
        NOW,
        size_gb=10,
        access_mode="ReadWriteOnce",
        fs_type="ext4",
        mount_path="/data",
        retain_policy=RetainPolicy.RETAIN,
        phase=VolumePhase.ERROR,
        last_error="mount nfs://user:hunter2@store failed",
        workload_refs=("w1", "w2"),
        attached_nodes=("n1", "n2"),
        node_id="n1",
        device="/dev/vdb",
        standalone=True,
    )
    held = Attachment(
        "disk-1", "w1", "n1", NOW, NOW, NOW, mount_path="/data", read_only=True,
        phase=AttachmentPhase.ERROR, last_error="token=abc is wrong",
    )  # fmt: skip
    at = timestamp(NOW)
    assert shown(VolumeView(volume, (held,), HELD)) == pb.VolumeView(
        disk=pb.DiskView(
            id="disk-1",
            name="data",
            driver="ceph-rbd",
            size_gb=10,
            fs_type="ext4",
            access_mode="ReadWriteOnce",
            retain_policy="Retain",
            phase="Error",
            last_error="mount nfs://***@store failed",
            node_id="n1",
            device="/dev/vdb",
            standalone=True,
            mount_path="/data",
            workload_refs=["w1", "w2"],
            attached_nodes=["n1", "n2"],
            created_at=at,
            updated_at=at,
        ),
        attachments=[
            pb.VolumeAttachmentView(
                workload_id="w1",
                node_id="n1",
                mount_path="/data",
                read_only=True,
                phase="Error",
                last_error="token=*** is wrong",
                last_transition=at,
            )
        ],
        held_reason=HELD,
    )


@pytest.mark.asyncio
async def test_volumes_are_listed_with_their_filters() -> None:
    """Node, workload and phase in any case go in; the list says how fresh it is."""
    async with loopback() as at:
        answer = await list_(node_id="n1", workload_id="w1", phase=" retained ", min_revision=7)(at)
        assert at.scheduler.asked == [(VolumeFilter("n1", "w1", "Retained"), 7)]
        assert [view.disk.id for view in answer.volumes] == ["nfs:data"]
        assert (answer.store_revision, answer.stale, answer.age_seconds) == (42, True, 3)
        await list_()(at)
        assert at.scheduler.asked[1] == (VolumeFilter(), 0)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ((), "fenced: no exclusive volume is held there; this is over as soon as it is heard"
         " again"),
        (("nfs:a",), "fenced: 1 exclusive volume may move from there (nfs:a); this is over as soon"
         " as it is heard again"),
        (tuple(f"nfs:{each}" for each in "abcdef"),
         "fenced: 6 exclusive volumes may move from there (nfs:a, nfs:b, nfs:c, nfs:d, nfs:e, …);"
         " this is over as soon as it is heard again"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_fence_says_what_may_move(held: tuple[str, ...], words: str) -> None:
    """The reason goes in; the node shows the fence, the volumes come back by name."""
    async with loopback(FakeScheduler(held_there=held)) as at:
        answer = await fence()(at)
        assert at.scheduler.asked == [NodeIntentChange("n1", "power cut", "operator")]
        assert (answer.accepted, answer.message) == (True, words)
        assert tuple(answer.volume_ids) == held
        assert (answer.node.fenced, answer.node.fence_reason) == (True, "power cut")


def test_a_node_shows_its_fence() -> None:
    """What the operator said and when; nothing of it where there is none."""
    fenced = node_shown(node_view(fence=Fence(NOW, "power cut", "operator")))
    assert (fenced.fenced, fenced.fence_reason) == (True, "power cut")
    assert fenced.fenced_at == timestamp(NOW)
    free = node_shown(node_view())
    assert (free.fenced, free.fence_reason, free.HasField("fenced_at")) == (False, "", False)


FREE = evolve(volume_view(workload_refs=(), attached_nodes=()), attachments=())


@pytest.mark.parametrize(
    ("released", "words"),
    [
        (VolumeRelease(True, True, FREE),
         "released: nothing is recorded of it any more, and its data is left as it is"),
        (VolumeRelease(True, False, volume_view(held_reason=f"{HELD}, released"), "n1"),
         "released from n1: work may start elsewhere and write to it, so make sure that nothing on"
         " n1 can; this is over as soon as that node is heard again"),
        (VolumeRelease(False, False, volume_view(held_reason=HELD), "n1"),
         f"nfs:data is in use: {HELD}; delete what uses it, or release it by force if n1 cannot"
         " write any more"),
        (VolumeRelease(False, False, volume_view()),
         "nfs:data is in use: Attached on n1 for w1; delete what uses it"),
    ],
)  # fmt: skip
@pytest.mark.asyncio
async def test_a_release_says_what_is_left(released: VolumeRelease, words: str) -> None:
    """The whole order goes in; what was given up, who uses it and what to see to comes back."""
    async with loopback(FakeScheduler(release_shown=released)) as at:
        answer = await release(reason="burnt", force=True)(at)
        assert at.scheduler.asked == [ReleaseVolume("nfs:data", "burnt", force=True)]
        assert (answer.accepted, answer.message) == (released.accepted, words)
        assert answer.volume == shown(released.view)


@pytest.mark.asyncio
async def test_a_release_without_force_needs_no_reason() -> None:
    """Nothing uses the volume then, so nobody answers for anything."""
    async with loopback() as at:
        assert (await release()(at)).accepted
        assert at.scheduler.asked == [ReleaseVolume("nfs:data")]


@pytest.mark.parametrize(
    ("discard", "words"),
    [(False, ""), (True, "its local data on n1 is given up, so it may start elsewhere without")],
)
@pytest.mark.asyncio
async def test_a_retry_says_what_data_was_given_up(discard: bool, words: str) -> None:
    """The order reaches the core; only where data was given up there is something to say."""
    async with loopback() as at:
        request = pb.RetryWorkloadRequest(workload_id="w1", discard_local=discard)
        answer = await at.stub.RetryWorkload(request)
        assert at.scheduler.asked == [("w1", discard)]
        assert (answer.accepted, answer.message) == (True, words)


WRONG: list[tuple[Call, str]] = [
    (list_(phase="Lost"), "phase"),
    (list_(node_id="a\0b"), "node_id"),
    (list_(workload_id="a\0b"), "workload_id"),
    (list_(min_revision=-1), "min_revision"),
    (fence(node_id=""), "node_id"),
    (fence(reason=""), "reason"),
    (fence(reason=" "), "reason"),
    (fence(reason="a\0b"), "reason"),
    (release(volume_id=""), "volume_id"),
    (release(volume_id="a\nb"), "volume_id"),
    (release(reason="a\0b"), "reason"),
    (release(force=True), "reason"),
    (release(force=True, reason=" "), "reason"),
]


@pytest.mark.parametrize(("call", "field"), WRONG)
@pytest.mark.asyncio
async def test_wrong_requests_never_reach_the_core(call: Call, field: str) -> None:
    """A01, R4: INVALID_ARGUMENT names the field; what is answered for has a reason."""
    async with loopback() as at:
        error = await refused(call(at))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(error.details()).startswith(f"{field}: ")
        assert at.scheduler.asked == []


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (FrozenError("store away"), grpc.StatusCode.UNAVAILABLE),
        (NotFoundError("volume", "nfs:data"), grpc.StatusCode.NOT_FOUND),
        (RefusedError('node "n1" still beats'), grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
@pytest.mark.parametrize("order", [fence(), release()])
@pytest.mark.asyncio
async def test_every_order_is_refused_with_the_right_code(
    order: Call, raised: Exception, code: grpc.StatusCode
) -> None:
    """Frozen, unknown and not permitted are three answers, by the one table."""
    async with loopback(FakeScheduler(error=raised)) as at:
        error = await refused(order(at))
        assert error.code() is code
        assert str(raised) in str(error.details())
