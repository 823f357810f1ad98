"""Valid requests to start from, each in one line."""

from __future__ import annotations

import base64
import json
from typing import Any

from persys_proto.control.v1 import control_pb2 as pb

__all__ = ["apply", "compose", "container", "payload", "register", "suggest", "vm"]

YAML = "services:\n  web:\n    image: nginx\n"


def container(**fields: Any) -> pb.WorkloadSpec:
    """A container's spec; ``fields`` are those of its body."""
    body = pb.ContainerSpec(**({"image": "nginx:1.27"} | fields))
    resources = pb.ResourceRequirements(cpu_millicores=500, memory_mb=256, disk_gb=1)
    return pb.WorkloadSpec(type="container", resources=resources, container=body)


def compose(**fields: Any) -> pb.WorkloadSpec:
    """A Compose application's spec."""
    body = pb.ComposeSpec(**({"inline_yaml": YAML} | fields))
    return pb.WorkloadSpec(type="compose", compose=body)


def vm(**fields: Any) -> pb.WorkloadSpec:
    """A machine's spec."""
    body = pb.VMSpec(**({"vcpus": 2, "memory_mb": 2048} | fields))
    return pb.WorkloadSpec(type="vm", vm=body)


def payload(values: object, kind: str = "vm") -> pb.WorkloadSpec:
    """A machine's spec whose whole body is in the metadata."""
    text = base64.b64encode(json.dumps(values).encode()).decode()
    return pb.WorkloadSpec(type=kind, metadata={"persys.vm_spec_b64": text, "team": "x"})


def apply(spec: pb.WorkloadSpec | None = None, **fields: Any) -> pb.ApplyWorkloadRequest:
    """A request to apply ``spec``."""
    return pb.ApplyWorkloadRequest(**({"workload_id": "w1", "spec": spec} | fields))


def suggest(**fields: Any) -> pb.SubmitAutomationSuggestionRequest:
    """A policy's suggestion to stop a workload."""
    values: dict[str, Any] = {
        "suggestion_id": "s1",
        "policy_id": "p1",
        "policy_name": "night",
        "target_workload": "w1",
        "action_type": pb.AUTOMATION_ACTION_SET_DESIRED_STATE,
        "desired_state": "stop",
        "reason": "idle",
    }
    suggestion = pb.AutomationSuggestion(**(values | fields))
    return pb.SubmitAutomationSuggestionRequest(suggestion=suggestion)


def register(**fields: Any) -> pb.RegisterNodeRequest:
    """A node's registration, as agents send it."""
    capabilities = pb.NodeCapabilities(
        cpu_total_millicores=8000,
        memory_total_mb=16384,
        storage_pools=[pb.StoragePool(name="root", type="local", total_gb=100)],
        supported_workload_types=["container", "compose", "vm"],
        supported_storage_drivers=["local"],
    )
    values: dict[str, Any] = {
        "node_id": "n1",
        "capabilities": capabilities,
        "grpc_endpoint": "10.0.0.1:50051",
    }
    return pb.RegisterNodeRequest(**(values | fields))
