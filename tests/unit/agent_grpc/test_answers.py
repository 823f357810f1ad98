from __future__ import annotations

from datetime import UTC, datetime

import grpc
import grpc.aio
import pytest

from persys_adapters.agent_grpc.answers import clean, failure, refusal, report
from persys_core.model.node import Node
from persys_core.model.observation import AgentState, TaskStatus
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadType
from persys_core.ports.agents import NotFound, Refused, Unreachable
from persys_proto.agent.v1 import agent_pb2 as wire

NODE = Node("n1", Resources(), "10.0.0.1:7", frozenset(), datetime(2026, 1, 1, tzinfo=UTC))


def error(code: grpc.StatusCode, text: str = "") -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


def test_a_status_becomes_a_report() -> None:
    """Enums become words, seconds an instant, and the task comes out of the metadata."""
    status = wire.WorkloadStatus(
        id="w1",
        type=wire.WORKLOAD_TYPE_VM,
        revision_id="r1",
        desired_state=wire.DESIRED_STATE_STOPPED,
        actual_state=wire.ACTUAL_STATE_PENDING,
        message="task running",
        updated_at=1_700_000_000,
        metadata={"task_status": "running", "failure_reason": "INVALID_IMAGE"},
    )
    found = report(status)
    assert (found.workload_id, found.revision_id, found.message) == ("w1", "r1", "task running")
    assert (found.type, found.desired_state) == (WorkloadType.VM, DesiredState.STOPPED)
    assert (found.state, found.task_status) == (AgentState.PENDING, TaskStatus.RUNNING)
    assert found.failure_code == "INVALID_IMAGE"
    assert found.reported_at == datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        (wire.ACTUAL_STATE_UNSPECIFIED, AgentState.UNKNOWN),
        (wire.ACTUAL_STATE_PENDING, AgentState.PENDING),
        (wire.ACTUAL_STATE_RUNNING, AgentState.RUNNING),
        (wire.ACTUAL_STATE_STOPPED, AgentState.STOPPED),
        (wire.ACTUAL_STATE_FAILED, AgentState.FAILED),
        (wire.ACTUAL_STATE_UNKNOWN, AgentState.UNKNOWN),
    ],
)
def test_every_state_has_a_word(sent: wire.ActualState.ValueType, state: AgentState) -> None:
    """A state that was not given reads as unknown."""
    assert report(wire.WorkloadStatus(actual_state=sent)).state is state


def test_odd_values_of_other_releases_do_no_harm() -> None:
    """Unknown numbers, task words and impossible instants read as nothing."""
    status = wire.WorkloadStatus(metadata={"task_status": "dreaming"}, updated_at=-62135596800)
    status.MergeFromString(bytes([0x10, 99, 0x20, 99, 0x28, 99]))
    found = report(status)
    assert (found.type, found.desired_state, found.reported_at) == (None, None, None)
    assert (found.state, found.task_status) == (AgentState.UNKNOWN, TaskStatus.NONE)
    assert report(wire.WorkloadStatus(updated_at=2**62)).reported_at is None


@pytest.mark.parametrize(
    ("code", "text", "outcome"),
    [
        (grpc.StatusCode.UNKNOWN, "status not found: status not found", NotFound()),
        (grpc.StatusCode.NOT_FOUND, "", NotFound()),
        (grpc.StatusCode.UNKNOWN, "disk on fire", Refused("disk on fire")),
        (grpc.StatusCode.UNKNOWN, "[START_FAILED] x", Refused("[START_FAILED] x", "start_failed")),
        (grpc.StatusCode.PERMISSION_DENIED, "no", Refused("no", "permission_denied")),
        (grpc.StatusCode.UNIMPLEMENTED, "", Refused("unimplemented", "unimplemented")),
        (
            grpc.StatusCode.UNAVAILABLE,
            "connection refused",
            Unreachable("node n1 at 10.0.0.1:7: connection refused"),
        ),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            "",
            Unreachable("node n1 at 10.0.0.1:7: deadline_exceeded", deadline_exceeded=True),
        ),
    ],
)
def test_each_grpc_status_is_one_of_three_negatives(
    code: grpc.StatusCode, text: str, outcome: object
) -> None:
    """Silence, refusal and absence are told apart."""
    assert failure(NODE, error(code, text)) == outcome


def test_texts_lose_secrets_and_credentials() -> None:
    """Known values and URL credentials are masked (field report A04)."""
    text = clean("pull https://u:pw@reg failed with s3cr3t-XYZ", {"s3cr3t-XYZ"})
    assert text == "pull https://***@reg failed with ***"
    assert refusal("[X_Y] s3cr3t-XYZ", {"s3cr3t-XYZ"}) == Refused("[X_Y] ***", "x_y")


def test_of_a_long_text_the_end_is_kept() -> None:
    """Agents send whole logs; their last lines say what went wrong."""
    text = clean("x" * 100_000 + "the cause", ())
    assert len(text) < 10_000
    assert text.endswith("the cause")
