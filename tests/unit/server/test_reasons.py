"""What people give as a reason is kept and shown, so no secret in it gets past the boundary."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from persys_proto.control.v1 import control_pb2 as pb
from tests.unit.server.fakes import loopback
from tests.unit.server.messages import suggest

TOLD = "moved, password=hunter2 at redis://u:hunter2@h/0"
KEPT = "moved, password=*** at redis://***@h/0"
ORDERS: list[Message] = [
    pb.CordonNodeRequest(node_id="n1", reason=TOLD),
    pb.UncordonNodeRequest(node_id="n1", reason=TOLD),
    pb.DrainNodeRequest(node_id="n1", reason=TOLD),
    pb.UndrainNodeRequest(node_id="n1", reason=TOLD),
    pb.RemoveNodeRequest(node_id="n1", reason=TOLD),
    pb.FenceNodeRequest(node_id="n1", reason=TOLD),
    pb.ReleaseVolumeRequest(volume_id="nfs:data", reason=TOLD, force=True),
    pb.ImportFromAgentsRequest(reason=TOLD),
    pb.AcknowledgeEmptyRequest(reason=TOLD),
    suggest(reason=TOLD),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
@pytest.mark.asyncio
async def test_a_reason_enters_without_secrets(order: Message) -> None:
    """A04: masked where it is read, so events, records and views never hold it."""
    async with loopback() as at:
        call: Any = getattr(at.stub, type(order).__name__.removesuffix("Request"))
        await call(order)
        asked = repr(at.scheduler.asked)
    assert KEPT in asked
    assert "hunter2" not in asked


def test_every_order_with_a_reason_is_tried() -> None:
    """A request that is new has to be added above."""
    with_reason = {
        name
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
        if name.endswith("Request") and "reason" in message.fields_by_name
    }
    assert with_reason == {type(order).__name__ for order in ORDERS} - {
        "SubmitAutomationSuggestionRequest"
    }
