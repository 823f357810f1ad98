"""Registrations are checked like input; heartbeats are observations and taken as they come."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from persys_core.model.errors import InvalidInputError
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.node_operations_in import intent_change
from persys_server.grpc.mapping.nodes_in import heartbeat, register_node
from tests.unit.server.fakes import NOW
from tests.unit.server.messages import register


def wrong(request: pb.RegisterNodeRequest) -> dict[str, str]:
    """The wrong fields of ``request`` with their messages; empty where it is accepted."""
    try:
        register_node(request)
    except InvalidInputError as error:
        return {found.field: found.message for found in error.errors}
    return {}


def capable(**fields: object) -> pb.RegisterNodeRequest:
    request = register()
    for name, value in fields.items():
        request.capabilities.ClearField(name)  # type: ignore[arg-type]
        if isinstance(value, list):
            getattr(request.capabilities, name).extend(value)
        else:
            setattr(request.capabilities, name, value)
    return request


def test_a_registration_is_mapped_whole() -> None:
    """Capacity, pools, types, drivers and labels arrive, normalised."""
    request = capable(
        supported_workload_types=[" Docker-Container ", "VM", "vm", "unikernel"],
        supported_storage_drivers=["NFS", "ceph_rbd", "tape"],
        reserved=[pb.ResourceAmount(name="cpu", amount=1000, unit="millicores")],
    )
    request.labels["region"] = "eu"
    request.agent_version = "1.2"
    node = register_node(request)
    assert node.capacity.cpu_millicores == 8000
    assert node.capacity.get("disk:root") == 100
    assert node.reserved == Resources.of(cpu_millicores=1000)
    assert node.workload_types == {WorkloadType.CONTAINER, WorkloadType.VM}
    assert node.storage_drivers == {"local", "nfs", "ceph-rbd"}
    assert (node.labels, node.agent_version) == ({"region": "eu"}, "1.2")


def test_storage_labels_count_as_drivers() -> None:
    """The seed: a label storage.nfs=true says that the node has the driver."""
    request = register(labels={"storage.nfs": "true", "storage.ceph-rbd": "no"})
    assert register_node(request).storage_drivers == {"local", "nfs"}


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [("10.0.0.1:50051", "10.0.0.1:50051"), ("host.example:1", "host.example:1"),
     ("[::1]:50051", "[::1]:50051"), ("fe80::1:50051", "[fe80::1]:50051"),
     (":50051", "127.0.0.1:50051"), (" h:65535 ", "h:65535")],
)  # fmt: skip
def test_endpoints(given: str, endpoint: str) -> None:
    """host:port in every form that agents build; IPv6 ends up in brackets."""
    assert register_node(register(grpc_endpoint=given)).endpoint == endpoint


@pytest.mark.parametrize("given", ["host", "host:", "host:http", "h:0", "h:65536", "a b:1", "x:y:1",
                                   "http://h:1", "h:-1", "h:1\n2"])  # fmt: skip
def test_bad_endpoints(given: str) -> None:
    """The text begins as the reference's does, so that agents' logs stay readable."""
    assert wrong(register(grpc_endpoint=given))["grpc_endpoint"].startswith("invalid grpc_endpoint")


WRONG: list[tuple[pb.RegisterNodeRequest, str]] = [
    (register(node_id=""), "node_id"),
    (register(node_id="a/b"), "node_id"),
    (register(grpc_endpoint=""), "grpc_endpoint"),
    (capable(cpu_total_millicores=0), "capabilities.cpu_total_millicores"),
    (capable(cpu_total_millicores=-1), "capabilities.cpu_total_millicores"),
    (capable(cpu_total_millicores=2**63 - 1), "capabilities.cpu_total_millicores"),
    (capable(memory_total_mb=0), "capabilities.memory_total_mb"),
    (capable(memory_total_mb=10**10 + 1), "capabilities.memory_total_mb"),
    (capable(storage_pools=[pb.StoragePool(name="", total_gb=1)]),
     "capabilities.storage_pools[0].name"),
    (capable(storage_pools=[pb.StoragePool(name="a", total_gb=-1)]),
     "capabilities.storage_pools[0].total_gb"),
    (capable(storage_pools=[pb.StoragePool(name="a")] * 2), "capabilities.storage_pools[1].name"),
    (capable(reserved=[pb.ResourceAmount(name="gpu", amount=1)]), "capabilities.reserved[0].name"),
    (capable(reserved=[pb.ResourceAmount(name="cpu", amount=8001)]),
     "capabilities.reserved[0].amount"),
    (capable(reserved=[pb.ResourceAmount(name="memory", amount=1, unit="GB")]),
     "capabilities.reserved[0].unit"),
    (register(labels={"a\n": "x"}), "labels['a\\n']"),
    (register(agent_version="\0"), "agent_version"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "field"), WRONG, ids=[field for _, field in WRONG])
def test_each_wrong_field_is_named(request_: pb.RegisterNodeRequest, field: str) -> None:
    """A01: absurd totals and all other bad input are refused with the field's name."""
    assert field in wrong(request_)


def test_a_missing_capability_message_is_two_wrong_fields() -> None:
    """Nothing said is not "as much as you like"."""
    bare = pb.RegisterNodeRequest(node_id="n1", grpc_endpoint="h:1")
    assert set(wrong(bare)) == {"capabilities.cpu_total_millicores", "capabilities.memory_total_mb"}


def status(**fields: object) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(**({"workload_id": "w1", "state": "Running"} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "state"),
    [("Running", AgentState.RUNNING), ("running", AgentState.RUNNING),
     ("FAILED", AgentState.FAILED), ("exploded", AgentState.UNKNOWN), ("", AgentState.UNKNOWN)],
)  # fmt: skip
def test_state_texts_map_to_the_closed_list(text: str, state: AgentState) -> None:
    """B5: a heartbeat cannot bring in a state that nobody knows."""
    beat = heartbeat(pb.HeartbeatRequest(node_id="n1", workload_statuses=[status(state=text)]), NOW)
    assert beat.reports[0].state is state


def test_a_beat_is_mapped_whole() -> None:
    """Reports, usage, order and times arrive."""
    request = pb.HeartbeatRequest(
        node_id="n1", boot_id="b", sequence=7, timestamp=Timestamp(seconds=1_700_000_000),
        usage=pb.NodeUsage(cpu_used_millicores=100, memory_used_mb=200),
        workload_statuses=[
            status(
                revision_id="r", message="m",
                failure_reason=pb.IMAGE_NOT_FOUND,
                usage=pb.WorkloadUsageSnapshot(cpu_percent=5),
            ),
            status(workload_id="w2", reason=pb.ReasonDetail(code="X", message="why")),
            status(workload_id=" "),
        ],
        workload_usage=[pb.WorkloadUsageSnapshot(workload_id="w1", cpu_percent=7)],
    )  # fmt: skip
    beat = heartbeat(request, NOW)
    assert (beat.boot_id, beat.sequence) == ("b", 7)
    assert beat.sent_at == datetime.fromtimestamp(1_700_000_000, UTC)
    assert beat.usage is not None
    assert beat.usage.used == Resources.of(cpu_millicores=100, memory_mb=200)
    assert beat.usage.reported_at == NOW
    first, second = beat.reports
    assert (first.revision_id, first.failure_code) == ("r", "IMAGE_NOT_FOUND")
    assert (second.failure_code, second.message) == ("X", "why")
    assert [usage.cpu_percent for usage in beat.workload_usage] == [7]
    assert beat.workload_usage[0].collected_at == NOW


def test_the_enum_that_agents_always_send_says_nothing() -> None:
    """RUNTIME_ERROR comes with every failure, hence is no code of its own."""
    failed = status(state="Failed", failure_reason=pb.RUNTIME_ERROR)
    beat = heartbeat(pb.HeartbeatRequest(node_id="n1", workload_statuses=[failed]), NOW)
    assert beat.reports[0].failure_code == ""


@pytest.mark.parametrize(
    "usage",
    [
        pb.WorkloadUsageSnapshot(workload_id="w1", cpu_percent=float("nan")),
        pb.WorkloadUsageSnapshot(workload_id="w1", cpu_percent=float("inf")),
        pb.WorkloadUsageSnapshot(workload_id="w1", cpu_percent=-1),
        pb.WorkloadUsageSnapshot(workload_id="w1", memory_bytes=-1),
    ],
)
def test_senseless_measurements_are_left_out(usage: pb.WorkloadUsageSnapshot) -> None:
    """A node that measures nonsense is still alive, and its other words still count."""
    request = pb.HeartbeatRequest(
        node_id="n1", usage=pb.NodeUsage(memory_used_mb=-5), workload_usage=[usage],
        workload_statuses=[status()], timestamp=Timestamp(seconds=-(2**62)),
    )  # fmt: skip
    beat = heartbeat(request, NOW)
    assert (beat.usage, beat.workload_usage, beat.sent_at) == (None, (), None)
    assert len(beat.reports) == 1


def test_who_sends_a_beat_must_be_right() -> None:
    """A blank id, and half of what orders beats, are refused."""
    with pytest.raises(InvalidInputError, match="node_id is required"):
        heartbeat(pb.HeartbeatRequest(), NOW)
    with pytest.raises(InvalidInputError, match="sequence"):
        heartbeat(pb.HeartbeatRequest(node_id="n1", boot_id="b"), NOW)
    with pytest.raises(InvalidInputError, match="boot_id"):
        heartbeat(pb.HeartbeatRequest(node_id="n1", sequence=1), NOW)


def test_an_operators_wish() -> None:
    """Who asked and why goes with it; odd ids of the past can be named."""
    change = intent_change(pb.CordonNodeRequest(node_id="a/b", reason="disk"), "operator")
    assert (change.node_id, change.reason, change.actor) == ("a/b", "disk", "operator")
    with pytest.raises(InvalidInputError, match="node_id"):
        intent_change(pb.UncordonNodeRequest(), "operator")
