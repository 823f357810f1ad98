"""Single records as the reference scheduler writes them: Go's JSON, its fields in its order.

A field that the reference always writes is always there, also when it is empty; one that it leaves
out when it is empty (``omitempty``) is left out. ``more`` replaces fields, or adds them at the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

AT = "2025-12-01T10:00:00.123456789Z"
"""When everything in the corpus was written."""
ZERO = "0001-01-01T00:00:00Z"

Json = dict[str, Any]


def go_json(value: Any) -> bytes:
    """``value`` as Go's encoder writes it: no spaces, three characters escaped, 4.0 as ``4``."""
    text = json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False)
    for each in "<>&\u2028\u2029":
        text = text.replace(each, f"\\u{ord(each):04x}")
    return text.encode()


def _plain(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case _:
            return value


def go_map(values: Mapping[str, Any]) -> Json:
    """A map of Go: its keys come out sorted. (A struct keeps the order of its fields.)"""
    return dict(sorted(values.items()))


def node(node_id: str, *, cpu: float = 32, memory: int = 65_536, **more: Any) -> Json:
    """``/nodes/{id}``; cpu in cores, memory in MB."""
    return {
        "nodeId": node_id,
        "ipAddress": "127.0.0.1",
        "username": "agent",
        "hostname": node_id,
        "osName": "linux",
        "kernelVersion": "unknown",
        "status": "Ready",
        "timestamp": "2025-12-01T09:00:00Z",
        "resources": {},
        "totalCpu": cpu,
        "totalMemory": memory,
        "availableCpu": cpu,
        "availableMemory": memory,
        "hypervisor": {"type": "", "status": ""},
        "containerEngine": {"type": "", "status": ""},
        "dockerSwarm": {"active": False},
        "lastHeartbeat": AT,
        "statusReason": "heartbeat received",
        "statusUpdatedBy": "heartbeat",
        "statusUpdatedAt": AT,
        "labels": go_map({"zone": "a", "scheduler_shard": "genesis"}),
        "agentPort": 50051,
        "agentGrpcPort": 50051,
        "agentEndpoint": "127.0.0.1:50051",
        "supportedWorkloadTypes": ["container", "compose", "vm", "microvm"],
        "supportedStorageDrivers": ["local", "nfs"],
        "domainName": f"{node_id}.persys.local",
    } | more


def revision(workload_id: str) -> str:
    """A revision as the reference makes them: 24 hex digits of nothing that we could compute."""
    return workload_id.encode().hex()[:24].ljust(24, "0")


def spec(workload_id: str, kind: str = "container", **more: Any) -> Json:
    """``/workloads-spec/{id}``; without ``more`` a plain container. It never has ``logs``."""
    given = {
        "id": workload_id,
        "name": workload_id,
        "type": kind,
        "revisionId": revision(workload_id),
        **({"image": "nginx:1"} if kind == "container" else {}),
    }
    order = (
        "command", "commandList", "compose", "composeYaml", "projectName", "gitRepo", "gitBranch",
        "gitToken", "envVars",
    )  # fmt: skip
    early = {name: more.pop(name) for name in order if name in more}
    rest = {
        "resources": {"cpu_usage": 0.25, "memory_usage": 128},
        "desiredState": "Running",
        "createdAt": AT,
    }
    return given | early | rest | more


def status(workload_id: str, node_id: str = "n1", word: str = "Running", **more: Any) -> Json:
    """``/workloads-status/{id}`` of a workload on ``node_id``; empty for one on no node."""
    placed = {"assignedNode": node_id, "nodeId": node_id} if node_id else {}
    fields: Json = {
        "id": workload_id,
        **placed,
        "status": word,
        "logs": "[2025-12-01 10:00:00] Workload created\n",
        "metadata": metadata(),
        "retry": {"attempts": 0, "maxAttempts": 5, "nextRetryAt": ZERO},
        "statusInfo": {
            "actualState": word,
            "lastUpdated": AT,
            "reason": {"lastTransition": ZERO, "nextRetryAt": ZERO},
        },
    }
    return fields | more


def metadata(**more: Any) -> Json:
    """What the reference notes of a workload: texts, numbers and truth values in one map."""
    noted: Json = {
        "created_at": AT,
        "last_action": "Assigned",
        "assignment_reason": "selected by lowest utilization score 0.1250",
        "lastApplyRequestAt": AT,
        "reapplyAttempts": 1,
        "managed_storage_state": "true",
        "usage_cpu_percent": "12.5000",
    }
    return go_map(noted | more)


def legacy(workload_id: str, node_id: str = "n1", word: str = "Running", **more: Any) -> Json:
    """``/workloads/{id}``: spec and status in one, with what neither projection keeps."""
    usage = {
        "workloadId": workload_id,
        "type": "container",
        "cpuPercent": 12.5,
        "memoryBytes": 1 << 20,
        "diskReadBytes": 0,
        "diskWriteBytes": 0,
        "netRxBytes": 0,
        "netTxBytes": 0,
        "collectedAt": AT,
        "source": "docker-stats",
    }
    volumes = [managed_volume("cache", "local")]
    extra = {"managedVolumes": volumes, "usage": usage}
    return spec(workload_id) | status(workload_id, node_id, word) | extra | more


def managed_volume(name: str, driver: str, **more: Any) -> Json:
    """One managed volume in a legacy object or in a machine."""
    return {
        "name": name,
        "driver": driver,
        "sizeGb": 1,
        "accessMode": "ReadWriteOnce",
        "fsType": "ext4",
        "mountPath": f"/{name}",
        "readOnly": False,
        "retainPolicy": "Delete",
    } | more


def machine(workload_id: str, **more: Any) -> Json:
    """``vm`` of a spec."""
    return {
        "name": workload_id,
        "vcpus": 1,
        "memoryMb": 512,
        "disks": [
            {
                "path": f"/var/lib/libvirt/images/{workload_id}-vda.qcow2",
                "device": "vda",
                "format": "qcow2",
                "sizeGb": 20,
                "type": "disk",
                "boot": True,
            }
        ],
        "networks": [{"network": "default", "macAddress": "52:54:00:00:00:01", "ipAddress": ""}],
        "cloudInit": "",
        "metadata": None,
        "cloudInitConfig": {
            "userData": "#cloud-config\n",
            "metaData": "",
            "networkConfig": "",
            "vendorData": "",
        },
        "managedVolumes": None,
    } | more


def assignment(workload_id: str, node_id: str = "n1") -> Json:
    """``/assignments/{id}``."""
    reason = "selected by placement score 0.8125 (cpu/mem headroom + spread, node has 3 workloads)"
    return {"workloadId": workload_id, "nodeId": node_id, "reason": reason, "createdAt": AT}


def volume(volume_id: str, workload_id: str, node_id: str, **more: Any) -> Json:
    """``/volumes/{driver}:{name}`` of a volume that one workload has attached."""
    driver, _, name = volume_id.partition(":")
    return {
        "id": volume_id,
        "name": name,
        "driver": driver,
        "sizeGb": 5,
        "accessMode": "ReadWriteOnce",
        "fsType": "ext4",
        "retainPolicy": "Delete",
        "phase": "Attached",
        "workloadRefs": [workload_id],
        "attachedNodes": [node_id],
        "createdAt": AT,
        "updatedAt": AT,
    } | more


def attachment(node_id: str, workload_id: str, volume_id: str) -> Json:
    """``/attachments/{node}/{workload}/{volume}``."""
    return {
        "id": f"/attachments/{node_id}/{workload_id}/{volume_id}",
        "volumeId": volume_id,
        "workloadId": workload_id,
        "nodeId": node_id,
        "driver": volume_id.partition(":")[0],
        "mountPath": "/data",
        "phase": "Attached",
        "lastTransition": AT,
        "createdAt": AT,
        "updatedAt": AT,
    }
