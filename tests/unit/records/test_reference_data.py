"""Records that the reference scheduler wrote are read in place, sensibly and without loss."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from persys_adapters.records.codec import Decoded, UnreadableRecordError, decode, encode
from persys_adapters.records.json_values import instant
from persys_adapters.records.legacy import halves_of
from persys_adapters.records.mounts import port_from, volume_from
from persys_core.model.cluster import LeaderRecord
from persys_core.model.drift import DriftRecord, DriftType
from persys_core.model.node import Node, Taint
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    PortMapping,
    VmSpec,
    VolumeMount,
)
from persys_core.model.states import (
    DesiredState,
    ObservedState,
    RestartPolicy,
    TaintEffect,
    WorkloadStatus,
    WorkloadType,
)
from persys_core.model.workload import Assignment, StatusRecord, Workload
from persys_core.ports.cluster_store import Key, Kind

ZERO = "0001-01-01T00:00:00Z"

NODE: dict[str, Any] = {
    "nodeId": "n1",
    "ipAddress": "10.0.0.7",
    "username": "root",
    "hostname": "n1.example",
    "osName": "linux",
    "kernelVersion": "6.1",
    "status": "Ready",
    "timestamp": "2026-06-01T10:00:00Z",
    "resources": {},
    "totalCpu": 7.5,
    "totalMemory": 16000,
    "availableCpu": 7.5,
    "availableMemory": 16000,
    "hypervisor": {"type": "kvm", "status": "active"},
    "containerEngine": {"type": "docker", "status": "active"},
    "dockerSwarm": {"active": False},
    "lastHeartbeat": "2026-06-01T10:05:00.123456789Z",
    "statusUpdatedAt": ZERO,
    "labels": {"zone": "a", "storage.nfs": "true"},
    "agentPort": 50051,
    "agentEndpoint": "10.0.0.7:50051",
    "domainName": "n1.cluster.local",
}
SPEC: dict[str, Any] = {
    "id": "w1",
    "name": "web",
    "type": "container",
    "revisionId": "a" * 24,
    "image": "nginx:1",
    "commandList": ["nginx", "-g", "daemon off;"],
    "envVars": {"A": "1"},
    "resources": {"cpu_usage": 0.25, "memory_usage": 128, "disk_usage": 1},
    "desiredState": "Stopped",
    "labels": {"zone": "a"},
    "createdAt": "2026-06-01T10:00:00.5+02:00",
    "ports": ["8080:80/tcp", "53:53/udp"],
    "volumes": ["/data:/var/data", "/etc/x:/x:ro"],
    "restartPolicy": "always",
}
STATUS: dict[str, Any] = {
    "id": "w1",
    "assignedNode": "n1",
    "nodeId": "n1",
    "status": "RetryPending",
    "logs": "[2026-06-01 10:00:00] started\n",
    "metadata": {"last_action": "RetryScheduled", "attempt": 3, "retry_terminal": False},
    "retry": {"attempts": 3, "maxAttempts": 5, "nextRetryAt": "2026-06-01T10:01:00Z"},
    "statusInfo": {
        "actualState": "Failed",
        "lastUpdated": "2026-06-01T10:00:30Z",
        "failureReason": "exit 1",
        "reason": {"lastTransition": ZERO, "nextRetryAt": ZERO},
    },
}


def read(key: Key, value: dict[str, Any]) -> Decoded:
    return decode(key, json.dumps(value).encode())


def node(**changes: Any) -> Node:
    record = read(Key.node("n1"), {**NODE, **changes}).record
    assert isinstance(record, Node)
    return record


def workload(value: dict[str, Any]) -> Workload:
    record = read(Key.workload("w1"), value).record
    assert isinstance(record, Workload)
    return record


def status(**changes: Any) -> StatusRecord:
    record = read(Key.status("w1"), {**STATUS, **changes}).record
    assert isinstance(record, StatusRecord)
    return record


def test_a_node_is_read() -> None:
    """Capacity in our units, endpoint, labels and kinds come from the reference's fields."""
    found = node()
    assert (found.id, found.endpoint) == ("n1", "10.0.0.7:50051")
    assert found.capacity == Resources.of(cpu_millicores=7500, memory_mb=16000)
    assert found.labels == {"zone": "a", "storage.nfs": "true"}
    assert found.registered_at == datetime(2026, 6, 1, 10, tzinfo=UTC)
    assert found.is_schedulable


def test_a_node_without_kinds_runs_containers() -> None:
    """A node that names no kinds runs containers, and machines where it has a hypervisor."""
    containers = {WorkloadType.CONTAINER, WorkloadType.COMPOSE}
    assert node().workload_types == containers | {WorkloadType.VM}
    assert node(hypervisor={"type": "", "status": "none"}).workload_types == containers
    assert node(supportedWorkloadTypes=["container", "wasm"]).workload_types == {
        WorkloadType.CONTAINER
    }


def test_a_node_without_endpoint_has_an_address() -> None:
    """An old record's endpoint is its address and port; the gRPC port wins."""
    assert node(agentEndpoint="").endpoint == "10.0.0.7:50051"
    assert node(agentEndpoint="", agentGrpcPort=7000).endpoint == "10.0.0.7:7000"


@pytest.mark.parametrize("word", ["Draining", "Drained", "draining"])
def test_a_draining_node_stays_so(word: str) -> None:
    """The July release keeps a drain in the status; it is an operator's wish to us (D01)."""
    assert node(status=word).intent.draining


def test_taints_are_read() -> None:
    """Taints of the July release count; no effect is NoSchedule, an unknown one is ignored."""
    taints = [
        {"key": "gpu"},
        {"key": "old", "value": "v", "effect": "PreferNoSchedule"},
        {"key": "odd", "effect": "Whatever"},
    ]
    assert node(taints=taints).intent.taints == (
        Taint("gpu"),
        Taint("old", "v", TaintEffect.PREFER_NO_SCHEDULE),
    )


def test_what_a_node_does_not_need_survives() -> None:
    """A rewrite keeps every field of the reference that has none in our record (U01)."""
    decoded = read(Key.node("n1"), NODE)
    again = json.loads(encode(Key.node("n1"), decoded.record, "token", decoded.unknown))
    kept = ("username", "osName", "lastHeartbeat", "ipAddress", "hypervisor", "domainName")
    assert {name: again[name] for name in kept} == {name: NODE[name] for name in kept}
    assert (again["nodeId"], again["totalCpu"], again["status"]) == ("n1", 7.5, "Ready")


def test_a_container_is_read() -> None:
    """Every field of a container spec has its place in ours."""
    found = workload(SPEC)
    assert (found.id, found.uid, found.revision_id) == ("w1", "", "a" * 24)
    assert found.desired_state is DesiredState.STOPPED
    assert found.created_at == datetime(2026, 6, 1, 8, 0, 0, 500_000, tzinfo=UTC)
    assert found.spec.resources == Resources.of(cpu_millicores=250, memory_mb=128, disk_gb=1)
    assert found.spec.metadata == {"persys.scheduling.node_selector.zone": "a"}
    assert found.spec.body == ContainerSpec(
        image="nginx:1",
        command=("nginx", "-g", "daemon off;"),
        env={"A": "1"},
        volumes=(VolumeMount("/data", "/var/data"), VolumeMount("/etc/x", "/x", read_only=True)),
        ports=(PortMapping(8080, 80), PortMapping(53, 53, "udp")),
        restart_policy=RestartPolicy.ALWAYS,
    )


def test_a_compose_application_is_read() -> None:
    """Compose comes inline, under either name, or from a git repository."""
    base = {"id": "w1", "type": "Compose", "envVars": {"A": "1"}}
    for name in ("composeYaml", "compose"):
        inline = workload({**base, name: "services: {}"}).spec.body
        assert inline == ComposeSpec(inline_yaml="services: {}", env={"A": "1"})
    git = workload({**base, "gitRepo": "https://x/y", "gitBranch": "main"}).spec.body
    assert git == ComposeSpec(git_repo="https://x/y", git_ref="main", env={"A": "1"})


def test_a_machine_is_read() -> None:
    """Disks, networks, first-boot data and volumes of a machine are read; so are July's fields."""
    vm = {
        "name": "box",
        "vcpus": 2,
        "memoryMb": 2048,
        "disks": [{"path": "/i.qcow2", "device": "vda", "sizeGb": 10, "backingFile": "/b"}],
        "networks": [{"network": "default", "macAddress": "52:54", "ipAddress": "10.1.1.2"}],
        "cloudInitConfig": {"userData": "#cloud-config", "sshPublicKey": "ssh-ed25519 A"},
        "managedVolumes": [{"name": "data", "driver": "nfs", "sizeGb": 5}],
        "osImage": "debian-12",
        "diskGb": 20,
    }
    body = workload({"id": "w1", "type": "vm", "vm": vm}).spec.body
    assert isinstance(body, VmSpec)
    assert (body.vcpus, body.memory_mb, body.os_image, body.disk_gb) == (2, 2048, "debian-12", 20)
    assert body.disks[0].backing_file == "/b"
    assert body.networks[0].static_ip == "10.1.1.2"
    assert body.cloud_init.ssh_public_key == "ssh-ed25519 A"
    assert body.managed_volumes == (ManagedVolume("data", "nfs", 5),)


@pytest.mark.parametrize("alias", ["microvm", "micro-vm", "firecracker"])
def test_microvm_has_aliases(alias: str) -> None:
    """The July release's names of a microVM are one kind."""
    assert workload({"id": "w1", "type": alias}).spec.type is WorkloadType.MICROVM


def test_an_unknown_kind_is_quarantined() -> None:
    """A spec of a kind that we cannot run is told apart, not guessed."""
    with pytest.raises(UnreadableRecordError, match="workload/w1"):
        workload({**SPEC, "type": "wasm"})


def test_a_status_is_read() -> None:
    """State, node, retry and last action come from the reference's fields."""
    found = status()
    assert found.status is WorkloadStatus.RETRY_PENDING
    assert found.observed.state is ObservedState.FAILED
    assert found.observed.node_id == "n1"
    assert found.updated_at == datetime(2026, 6, 1, 10, 0, 30, tzinfo=UTC)
    assert found.retry.attempts == 3
    assert found.retry.next_at == datetime(2026, 6, 1, 10, 1, tzinfo=UTC)
    assert found.last_action == "RetryScheduled"
    assert found.reason is None


def test_any_text_is_a_status() -> None:
    """Old heartbeats stored raw strings as a status: what is no word of ours is Unknown."""
    assert status(status="exited(137)").status is WorkloadStatus.UNKNOWN
    assert status(status="running").status is WorkloadStatus.RUNNING


def test_what_a_status_does_not_need_survives() -> None:
    """Logs, metadata of any type and the retry limit stay; our last action replaces theirs."""
    decoded = read(Key.status("w1"), STATUS)
    again = json.loads(encode(Key.status("w1"), decoded.record, "token", decoded.unknown))
    assert again["logs"] == STATUS["logs"]
    assert again["metadata"] == STATUS["metadata"]
    assert again["retry"]["maxAttempts"] == 5


def test_an_assignment_is_read() -> None:
    """An assignment of the reference is charged with nothing before the ledger is built."""
    value = {"workloadId": "w1", "nodeId": "n1", "reason": "why", "createdAt": ZERO}
    found = read(Key.assignment("w1"), value).record
    assert isinstance(found, Assignment)
    assert (found.workload_id, found.node_id, found.reason) == ("w1", "n1", "why")
    assert found.charged == Resources()


def test_a_leader_in_plain_text_is_read() -> None:
    """The election protocol of etcd stores the bare instance id under election and lease."""
    found = decode(Key.leader("shard-1/694d7f2c"), b"host-1a2b3c4d").record
    assert found == LeaderRecord("shard-1", "host-1a2b3c4d")


def test_an_older_record_of_ours_has_defaults() -> None:
    """Fields that were added later are filled in, required ones with an empty value (U01)."""
    found = read(Key.node("n1"), {"nodeId": "n1", "persys": {"id": "n1", "capacity": {}}}).record
    assert isinstance(found, Node)
    assert found.registered_at == datetime(1970, 1, 1, tzinfo=UTC)
    assert found.workload_types == frozenset()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (ZERO, None),
        ("", None),
        ("2026-06-01T10:00:00Z", datetime(2026, 6, 1, 10, tzinfo=UTC)),
        ("2026-06-01T10:00:00.123456789Z", datetime(2026, 6, 1, 10, 0, 0, 123456, tzinfo=UTC)),
        ("2026-06-01T12:00:00+02:00", datetime(2026, 6, 1, 10, tzinfo=UTC)),
        ("2026-06-01T10:00:00", datetime(2026, 6, 1, 10, tzinfo=UTC)),
    ],
)
def test_instants(text: str, found: datetime | None) -> None:
    """Go's zero instant is none; nanoseconds are cut, offsets are turned into UTC."""
    assert instant(text) == found


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8080:80/tcp", PortMapping(8080, 80)),
        ("8080:80", PortMapping(8080, 80)),
        ("80", PortMapping(0, 80)),
        ("127.0.0.1:8080:80/udp", PortMapping(8080, 80, "udp")),
    ],
)
def test_ports(text: str, port: PortMapping) -> None:
    """Ports in every form that the reference stores."""
    assert port_from(text) == port


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("/a:/b", VolumeMount("/a", "/b")),
        ("/a:/b:ro", VolumeMount("/a", "/b", read_only=True)),
        ("/a:/b:rw", VolumeMount("/a", "/b")),
        ("/b", VolumeMount("", "/b")),
    ],
)
def test_volumes(text: str, volume: VolumeMount) -> None:
    """Volumes in every form that the reference stores."""
    assert volume_from(text) == volume


def test_a_drift_record_is_read_in_place() -> None:
    """A drift that the reference recorded is known, and its unknown fields survive."""
    written = {
        "nodeId": "n1",
        "workloadId": "w1",
        "driftType": "missing_on_agent",
        "detectedAt": "2026-06-01T10:00:00Z",
        "schedulerStatus": "Running",
        "action": "retry_and_reconcile",
        "resolved": True,
        "lastError": "agent away",
        "later": 1,
    }
    key = Key.drift("n1", "w1", DriftType.MISSING_ON_AGENT)
    found = decode(key, json.dumps(written).encode())
    assert found.record == DriftRecord(
        "n1",
        "w1",
        DriftType.MISSING_ON_AGENT,
        datetime(2026, 6, 1, 10, tzinfo=UTC),
        "Running",
        action="retry_and_reconcile",
        resolved=True,
        last_error="agent away",
    )
    again = json.loads(encode(key, found.record, "token", found.unknown))
    assert {**again, "persys": None} == {**written, "persys": None}


@pytest.mark.parametrize(
    "changes",
    [
        {"retry": {"attempts": 5, "maxAttempts": 5}},
        {"metadata": {"retry_terminal": True}},
        {"metadata": {"retry_terminal": "true"}},
        {"metadata": {"failure_reason": "PORT_BIND_CONFLICT"}},
    ],
)
def test_what_the_reference_gave_up_stays_so(changes: dict[str, Any]) -> None:
    """A halted workload is not tried again by itself; its texts, which may tell secrets, are not
    repeated."""
    found = status(**{"status": "Failed", "metadata": {}, "retry": {"attempts": 1}, **changes})
    assert found.retry.exhausted
    assert found.retry.next_at is None
    assert found.reason is not None
    assert "exit 1" not in found.reason.message
    assert not status(**{**changes, "status": "Running"}).retry.exhausted


def test_a_failure_that_may_be_tried_again_is_not_given_up() -> None:
    """Failed with tries left goes on where it was."""
    found = status(status="Failed", retry={"attempts": 2, "maxAttempts": 5})
    assert (found.retry.exhausted, found.retry.attempts) == (False, 2)


def test_what_runs_has_a_new_budget() -> None:
    """Attempts of long ago, which the reference never forgets, do not count (C7)."""
    assert status(status="Running").retry.attempts == 0


def test_the_wishes_of_users_are_told_from_notes() -> None:
    """Only texts under our names, well formed, and nothing that the reference noted itself."""
    metadata = {
        "persys.scheduling.persistence_class": "node-local",
        "persys.scheduling.strategy": "no such one",
        "persys.scheduling.pinned_reason": "local data",
        "persys.disk.ids": "disk-1",
        "allow_move": "true",
        "persys.number": 7,
        "last_error": "boom",
    }
    assert status(metadata=metadata).user_metadata == {
        "persys.scheduling.persistence_class": "node-local",
        "persys.disk.ids": "disk-1",
        "allow_move": "true",
    }


def test_logs_are_cut_to_their_last_lines() -> None:
    """At most 50 whole lines and 8 KiB stay in the record, in either layout (C5)."""
    line = "[2026-06-01 10:00:00] a line that says something\n"
    for count in (60, 100_000):
        decoded = read(Key.status("w1"), {**STATUS, "logs": line * count})
        assert decoded.unknown["logs"] == line * 50
        half = halves_of(json.dumps({**SPEC, **STATUS, "logs": line * count}).encode())
        assert json.loads(half[Kind.STATUS])["logs"] == line * 50
    long = "x" * 100_000 + "\n" + line
    assert read(Key.status("w1"), {**STATUS, "logs": long}).unknown["logs"] == line


def test_labels_that_no_selector_can_be_are_left_out() -> None:
    """A malformed wish would make the workload unplaceable for ever; the label itself stays."""
    found = workload({**SPEC, "labels": {"zone": "a", "": "b"}})
    assert found.spec.metadata == {"persys.scheduling.node_selector.zone": "a"}
