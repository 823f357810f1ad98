"""R4: invalid requests made from the contract itself, one wrong scalar at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from persys_core.model.errors import InvalidInputError
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping import node_operations_in, nodes_in, workloads_in
from persys_server.grpc.mapping.events import list_events, watch_events
from tests.unit.server.messages import apply, compose, container, register, vm

_INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
_LOWEST = {FieldDescriptor.CPPTYPE_INT32: -(2**31), FieldDescriptor.CPPTYPE_INT64: -(2**63)}

FULL_CONTAINER = container(
    command=["a"], env={"A": "b"}, restart_policy="no",
    volumes=[pb.VolumeMount(host_path="/a", container_path="/b")],
    ports=[pb.Port(host_port=1, container_port=1, protocol="tcp")],
    managed_volumes=[
        pb.ManagedVolumeSpec(
            name="a", driver="nfs", size_gb=1, access_mode="rwo", fs_type="xfs", mount_path="/c",
            retain_policy="Retain",
        )
    ],
)  # fmt: skip
FULL_CONTAINER.metadata["team"] = "x"
FULL_VM = vm(
    disks=[pb.DiskConfig(pool_name="p", size_gb=1, mount_point="/m")],
    networks=[pb.NetworkConfig(bridge="br0", static_ip="10.0.0.1")], os_image="ubuntu",
    cloud_init=pb.CloudInitConfig(
        user_data="a", meta_data="b", network_config="c", vendor_data="d"
    ),
)  # fmt: skip
FULL_REGISTRATION = register(labels={"a": "b"}, agent_version="1", cluster_id="c")
FULL_REGISTRATION.capabilities.reserved.add(name="cpu", amount=1, unit="millicores")

Check = Callable[[Any], object]


def by_operator(name: str) -> Check:
    """One of the checks that also take who asks."""
    check = getattr(node_operations_in, name)
    return lambda message: check(message, "operator")


BASES: list[tuple[Message, Check]] = [
    (apply(FULL_CONTAINER, revision_id="r", desired_state="Running"), workloads_in.apply_workload),
    (apply(compose(env={"A": "b"})), workloads_in.apply_workload),
    (apply(compose(inline_yaml="", git_repo="https://h/r", git_ref="m", source_type="git")),
     workloads_in.apply_workload),
    (apply(FULL_VM), workloads_in.apply_workload),
    (FULL_REGISTRATION, nodes_in.register_node),
    (pb.GetWorkloadRequest(workload_id="w"), workloads_in.read_workload),
    (pb.ExplainWorkloadRequest(workload_id="w"), workloads_in.explain_request),
    (pb.GetNodeRequest(node_id="n"), nodes_in.read_node),
    (pb.ListEventsRequest(type="NodeLost", workload_id="w", node_id="n"), list_events),
    (pb.WatchEventsRequest(type="NodeLost", workload_id="w", node_id="n", after_id="1"),
     watch_events),
    (pb.CordonNodeRequest(node_id="n", reason="r"), by_operator("intent_change")),
    (pb.UndrainNodeRequest(node_id="n", reason="r"), by_operator("intent_change")),
    (pb.DrainNodeRequest(node_id="n", reason="r", deadline_seconds=1, force=True),
     by_operator("drain_node")),
    (pb.GetDrainProgressRequest(node_id="n"), node_operations_in.drained_node),
    (pb.TaintNodeRequest(node_id="n", taint=pb.NodeTaint(key="k", value="v", effect="noexecute")),
     by_operator("taint_node")),
    (pb.UntaintNodeRequest(node_id="n", key="k", effect="NoSchedule"),
     by_operator("untaint_node")),
    (pb.SetNodeLabelRequest(node_id="n", key="k", value="v"), by_operator("set_label")),
    (pb.DeleteNodeLabelRequest(node_id="n", key="k"), by_operator("delete_label")),
]  # fmt: skip

# Words that an agent of the future may say; they are left out, and the node joins all the same.
TOLERATED = {
    "capabilities.supported_workload_types",
    "capabilities.supported_storage_drivers",
    "timestamp.seconds",
    "timestamp.nanos",
}


def paths(message: Message, prefix: str = "") -> Iterator[str]:
    """Every scalar field of ``message`` that can be reached, also those that are not set."""
    for field in message.DESCRIPTOR.fields:
        name = prefix + field.name
        if field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            yield name
            continue
        value: Any = getattr(message, field.name)
        if hasattr(value, "keys"):
            yield from (f"{name}[{key}]" for key in value)
        elif field.is_repeated:
            for index, item in enumerate(value):
                yield from paths(item, f"{name}[{index}].")
        elif field.containing_oneof is None or message.HasField(field.name):
            yield from paths(value, f"{name}.")


def broken(message: Message, path: str) -> Message | None:
    """A copy of ``message`` with a value at ``path`` that no request may have, if there is one."""
    copy = type(message)()
    copy.CopyFrom(message)
    target: Any = copy
    *steps, last = path.split(".")
    for step in steps:
        name, _, index = step.rstrip("]").partition("[")
        target = getattr(target, name)
        target = target[int(index)] if index else target
    name, _, key = last.rstrip("]").partition("[")
    field = target.DESCRIPTOR.fields_by_name[name]
    if key:
        getattr(target, name)[key] = "a\0b"
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.is_repeated:
        getattr(target, name).append("a\0b")
    elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        setattr(target, name, "a\0b")
    elif field.cpp_type in _INTEGERS:
        setattr(target, name, _LOWEST[field.cpp_type])
    else:
        return None
    return copy


CASES = [
    pytest.param(broken(base, path), check, path, id=f"{type(base).__name__}.{path}")
    for base, check in BASES
    for path in paths(base)
    if path not in TOLERATED and broken(base, path) is not None
]


@pytest.mark.parametrize(("base", "check"), BASES)
def test_the_requests_to_start_from_are_valid(base: Message, check: Check) -> None:
    """What is broken below is broken by the one change alone."""
    check(base)


def test_there_are_cases_for_every_kind_of_request() -> None:
    """The generator finds the fields of the contract."""
    assert len(CASES) > 80


@pytest.mark.parametrize(("request_", "check", "path"), CASES)
def test_each_scalar_of_the_contract_is_checked(request_: Message, check: Check, path: str) -> None:
    """R4: INVALID_ARGUMENT with the field named, for every scalar that a request can carry."""
    with pytest.raises(InvalidInputError) as caught:
        check(request_)
    fields = [error.field for error in caught.value.errors]
    assert any(field.startswith(path) for field in fields), fields
