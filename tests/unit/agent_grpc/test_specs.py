from __future__ import annotations

import base64
import json

import pytest

from persys_adapters.agent_grpc.specs import SpecNotExpressibleError, apply_message, sent_secrets
from persys_agent.specs import apply_request
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    DiskSpec,
    ManagedVolume,
    NetworkSpec,
    PortMapping,
    SpecBody,
    VmSpec,
    VolumeMount,
    WorkloadSpec,
)
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.ports.agents import ApplyRequest
from persys_proto.agent.v1 import agent_pb2 as wire

RESOURCES = Resources.of(cpu_millicores=1500, memory_mb=256, disk_gb=5)


def message(
    body: SpecBody,
    kind: WorkloadType = WorkloadType.CONTAINER,
    metadata: dict[str, str] | None = None,
    desired: DesiredState = DesiredState.RUNNING,
) -> wire.ApplyWorkloadRequest:
    spec = WorkloadSpec(kind, RESOURCES, body, metadata or {})
    return apply_message(ApplyRequest("Web_1", "rev", desired, spec, epoch=3))


def machine(body: VmSpec) -> wire.VMSpec:
    return message(body, WorkloadType.VM).spec.vm


def test_a_container_is_sent_with_every_field() -> None:
    """Millicores become cpu_shares, MB bytes, the restart policy a message."""
    body = ContainerSpec(
        "nginx:1",
        command=("nginx", "-g"),
        env={"A": "1"},
        volumes=(VolumeMount("/h", "/c", read_only=True),),
        ports=(PortMapping(8080, 80, "udp"),),
        restart_policy=RestartPolicy.ON_FAILURE,
        privileged=True,
        managed_volumes=(ManagedVolume("data", "nfs", 5, "RWO", "ext4", "/d", True, "Retain"),),
    )
    sent = message(body, metadata={"team": "a"})
    assert sent == wire.ApplyWorkloadRequest(
        id="Web_1",
        type=wire.WORKLOAD_TYPE_CONTAINER,
        revision_id="rev",
        desired_state=wire.DESIRED_STATE_RUNNING,
        spec=wire.WorkloadSpec(
            container=wire.ContainerSpec(
                image="nginx:1",
                command=["nginx", "-g"],
                env={"A": "1"},
                volumes=[wire.VolumeMount(host_path="/h", container_path="/c", read_only=True)],
                ports=[wire.PortMapping(host_port=8080, container_port=80, protocol="udp")],
                resources=wire.ResourceLimits(cpu_shares=1500, memory_bytes=256 * 1024 * 1024),
                restart_policy=wire.RestartPolicy(policy="on-failure"),
                labels={"team": "a"},
                managed_volumes=[
                    wire.ManagedVolumeSpec(
                        name="data",
                        driver="nfs",
                        size_gb=5,
                        access_mode="RWO",
                        fs_type="ext4",
                        mount_path="/d",
                        read_only=True,
                        retain_policy="Retain",
                    )
                ],
                privileged=True,
            )
        ),
        resources=wire.RequestedResources(cpu_millicores=1500, memory_mb=256, disk_gb=5),
    )


@pytest.mark.parametrize("wanted", [True, False])
def test_whether_a_container_is_privileged_arrives(wanted: bool) -> None:
    """What the scheduler sends is what an agent reads."""
    read = apply_request(message(ContainerSpec("a", privileged=wanted)), 0).spec.body
    assert isinstance(read, ContainerSpec)
    assert read.privileged is wanted


@pytest.mark.parametrize("desired", list(DesiredState))
def test_only_stopped_is_sent_as_stopped(desired: DesiredState) -> None:
    """Everything else is running: a delete is another call."""
    sent = message(ContainerSpec("a"), desired=desired).desired_state
    stopped = desired is DesiredState.STOPPED
    assert sent == (wire.DESIRED_STATE_STOPPED if stopped else wire.DESIRED_STATE_RUNNING)


def test_labels_are_the_users_own_keys() -> None:
    """Nothing that Persys keeps in the metadata for itself reaches an agent."""
    metadata = {
        "team": "a",
        "empty": "",
        "persys.scheduling.strategy": "binpack",
        "persys.vm_spec_b64": "x",
        "persys.disk.ids": "d1",
        "disk_ids": "d1",
        "allow_move": "true",
    }
    labels = message(ContainerSpec("a"), metadata=metadata).spec.container.labels
    assert dict(labels) == {"team": "a"}


def test_what_is_meant_for_the_agent_reaches_it() -> None:
    """Keys under persys.agent. go beside the spec, and what was asked goes along, whatever the
    kind; our agent reads both back."""
    metadata = {"persys.agent.pull_policy": "never", "persys.scheduling.strategy": "binpack"}
    body = ComposeSpec("services: {}\n")
    sent = message(body, WorkloadType.COMPOSE, metadata)
    assert dict(sent.metadata) == {"persys.agent.pull_policy": "never"}
    taken = apply_request(sent, epoch=3).spec
    assert taken.metadata == {"persys.agent.pull_policy": "never"}
    assert taken.resources == RESOURCES


def test_nothing_asked_is_nothing_said() -> None:
    """Without requests the agent is left with what the body asks."""
    spec = WorkloadSpec(WorkloadType.CONTAINER, Resources(), ContainerSpec("a"))
    sent = apply_message(ApplyRequest("w", "rev", DesiredState.RUNNING, spec, epoch=3))
    assert not sent.HasField("resources")


def test_a_compose_file_is_sent_as_base64() -> None:
    """The project is named after the workload, in what Compose accepts."""
    sent = message(ComposeSpec("services: {}\n", env={"A": "1"}), WorkloadType.COMPOSE).spec.compose
    assert base64.b64decode(sent.compose_yaml) == b"services: {}\n"
    assert (sent.project_name, dict(sent.env)) == ("web-1", {"A": "1"})


def test_a_compose_file_in_a_repository_cannot_be_sent() -> None:
    """The error names the field and what to do; it does not show the repository's address."""
    body = ComposeSpec(git_repo="https://user:pw@host/repo")
    with pytest.raises(SpecNotExpressibleError, match="inline_yaml") as caught:
        message(body, WorkloadType.COMPOSE)
    assert "pw" not in str(caught.value)


def test_a_machine_is_sent_with_every_field() -> None:
    """What the spec gives goes out as it is."""
    body = VmSpec(
        vcpus=2,
        memory_mb=1024,
        disks=(DiskSpec(9, path="/d", device="vdb", format="raw", boot=True, storage="nfs"),),
        networks=(NetworkSpec("br0", static_ip="10.0.0.2", mac_address="aa", model="e1000"),),
        cloud_init=CloudInit(user_data="u", password="p"),
        cloud_init_text="text",
        os_image="ubuntu",
        disk_gb=30,
        runtime="libvirt",
        name="vm-name",
        metadata={"k": "v"},
    )
    sent = machine(body)
    assert (sent.name, sent.vcpus, sent.memory_mb, sent.os_image, sent.disk_gb, sent.runtime) == (
        "vm-name",
        2,
        1024,
        "ubuntu",
        30,
        "libvirt",
    )
    (disk,), (network,) = sent.disks, sent.networks
    assert (disk.path, disk.device, disk.format, disk.size_gb, disk.boot, disk.storage) == (
        "/d",
        "vdb",
        "raw",
        9,
        True,
        "nfs",
    )
    assert (network.network, network.bridge, network.ip_address, network.mac_address) == (
        "br0",
        "br0",
        "10.0.0.2",
        "aa",
    )
    assert (sent.cloud_init, sent.cloud_init_config.user_data) == ("text", "u")
    assert dict(sent.metadata) == {"k": "v"}


def test_disks_get_the_defaults_that_agents_expect() -> None:
    """Device vda and on, qcow2, 20 GB, and a path that is the workload's own."""
    body = VmSpec(1, 512, disks=(DiskSpec(), DiskSpec(device="vda", format="raw"), DiskSpec(7)))
    disks = machine(body).disks
    assert [(disk.device, disk.path, disk.format, disk.size_gb, disk.type) for disk in disks] == [
        ("vdb", "/var/lib/libvirt/images/Web_1-vdb.qcow2", "qcow2", 20, "disk"),
        ("vda", "/var/lib/libvirt/images/Web_1-vda.img", "raw", 20, "disk"),
        ("vdc", "/var/lib/libvirt/images/Web_1-vdc.qcow2", "qcow2", 7, "disk"),
    ]


def test_a_machine_without_size_takes_the_requested_resources() -> None:
    """Part of a core counts as a whole one."""
    sent = machine(VmSpec(vcpus=0, memory_mb=0))
    assert (sent.name, sent.vcpus, sent.memory_mb, sent.runtime) == ("Web_1", 2, 256, "")
    assert not sent.HasField("cloud_init_config")


def test_a_microvm_is_a_type_of_its_own() -> None:
    """It goes out as such, with its runtime named."""
    sent = message(VmSpec(1, 128), WorkloadType.MICROVM)
    assert sent.type == wire.WORKLOAD_TYPE_MICROVM
    assert sent.spec.vm.runtime == "firecracker"


def test_an_encoded_machine_spec_wins() -> None:
    """`persys.vm_spec_b64` is sent instead of the reduced spec (decisions §2.7)."""
    fields = {"name": "full", "vcpus": 8, "cloud_init_config": {"password": "hush"}, "extra": 1}
    encoded = base64.b64encode(json.dumps(fields).encode()).decode()
    sent = message(VmSpec(1, 512), WorkloadType.VM, {"persys.vm_spec_b64": encoded})
    assert (sent.spec.vm.name, sent.spec.vm.vcpus) == ("full", 8)
    assert sent_secrets(sent) == {"hush"}


@pytest.mark.parametrize("text", ["%%%", "bm90IGpzb24=", "WzFd", "eyJ2Y3B1cyI6ICJzM2NyM3QifQ=="])
def test_a_broken_encoded_machine_spec_is_refused(text: str) -> None:
    """The error names the key and shows nothing of the content."""
    with pytest.raises(SpecNotExpressibleError, match="vm_spec_b64") as caught:
        message(VmSpec(1, 512), WorkloadType.VM, {"persys.vm_spec_b64": text})
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None
