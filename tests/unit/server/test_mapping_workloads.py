"""Applies: what is accepted, what it becomes, and that every wrong field is named (A01, A02)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys_core.model.errors import InvalidInputError
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    PortMapping,
    VmSpec,
    WorkloadSpec,
    spec_revision,
)
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.fields import quoted
from persys_server.grpc.mapping.limits import MAX_SPEC_BYTES
from persys_server.grpc.mapping.workloads_in import apply_workload, named_workload
from tests.unit.server.messages import apply, compose, container, payload, vm


def spec_of(message: pb.WorkloadSpec) -> WorkloadSpec:
    spec = apply_workload(apply(message)).spec
    assert spec is not None
    return spec


def wrong(request: pb.ApplyWorkloadRequest) -> dict[str, str]:
    """The wrong fields of ``request`` with their messages; empty where it is accepted."""
    try:
        apply_workload(request)
    except InvalidInputError as error:
        return {found.field: found.message for found in error.errors}
    return {}


def resources(**fields: int) -> pb.WorkloadSpec:
    message = container()
    message.resources.CopyFrom(pb.ResourceRequirements(**fields))
    return message


def typed(kind: str) -> pb.WorkloadSpec:
    message = container()
    message.type = kind
    return message


def with_metadata(**values: str) -> pb.WorkloadSpec:
    message = container()
    message.metadata.update({key.replace("__", "."): value for key, value in values.items()})
    return message


def ports(*pairs: tuple[int, int], protocol: str = "") -> pb.WorkloadSpec:
    return container(
        ports=[pb.Port(host_port=h, container_port=c, protocol=protocol) for h, c in pairs]
    )


def volume(**fields: object) -> pb.WorkloadSpec:
    values = {"name": "data", "mount_path": "/data"} | fields
    return container(managed_volumes=[pb.ManagedVolumeSpec(**values)])  # type: ignore[arg-type]


V0 = "spec.container.managed_volumes[0]"
B64 = "spec.metadata[persys.vm_spec_b64]"
BIG = 2**63 - 1

# A01: one row per way to be wrong: the spec, and the field that has to be named.
WRONG: list[tuple[pb.WorkloadSpec, str]] = [
    (resources(memory_mb=-1), "spec.resources.memory_mb"),
    (resources(memory_mb=BIG), "spec.resources.memory_mb"),
    (resources(memory_mb=10**10 + 1), "spec.resources.memory_mb"),
    (resources(cpu_millicores=-1), "spec.resources.cpu_millicores"),
    (resources(cpu_millicores=10**8 + 1), "spec.resources.cpu_millicores"),
    (resources(disk_gb=-(2**63)), "spec.resources.disk_gb"),
    (resources(disk_gb=BIG), "spec.resources.disk_gb"),
    (typed(""), "spec.type"),
    (typed("pod"), "spec.type"),
    (typed("vm"), "spec.vm"),
    (pb.WorkloadSpec(type="container"), "spec.container"),
    (container(image=""), "spec.container.image"),
    (container(image="a b"), "spec.container.image"),
    (container(image="-v"), "spec.container.image"),
    (container(env={"A=B": "x"}), "spec.container.env['A=B']"),
    (container(env={"": "x"}), "spec.container.env['']"),
    (container(env={"A": "x\0"}), "spec.container.env[A]"),
    (container(env={"A": "x" * 70_000}), "spec.container.env[A]"),
    (container(env={f"A{n}": "" for n in range(1001)}), "spec.container.env"),
    (container(command=["a"] * 1001), "spec.container.command"),
    (container(command=["ok", "a\0"]), "spec.container.command[1]"),
    (container(restart_policy="sometimes"), "spec.container.restart_policy"),
    (ports((0, 0)), "spec.container.ports[0].container_port"),
    (ports((1, 65536)), "spec.container.ports[0].container_port"),
    (ports((-1, 80)), "spec.container.ports[0].host_port"),
    (ports((65536, 80)), "spec.container.ports[0].host_port"),
    (ports((80, 80), (80, 81)), "spec.container.ports[1].host_port"),
    (ports((80, 80), (81, 80)), "spec.container.ports[1].container_port"),
    (ports((80, 80), protocol="icmp"), "spec.container.ports[0].protocol"),
    (container(volumes=[pb.VolumeMount(host_path="a", container_path="/b")]),
     "spec.container.volumes[0].host_path"),
    (container(volumes=[pb.VolumeMount(host_path="/a", container_path="")]),
     "spec.container.volumes[0].container_path"),
    (container(volumes=[pb.VolumeMount(host_path="/a/../b", container_path="/b")]),
     "spec.container.volumes[0].host_path"),
    (container(volumes=[pb.VolumeMount(host_path="/a", container_path="/b")] * 2),
     "spec.container.volumes[1].container_path"),
    (container(volumes=[pb.VolumeMount(host_path="/a", container_path="/d")],
               managed_volumes=[pb.ManagedVolumeSpec(name="x", mount_path="/d")]),
     f"{V0}.mount_path"),
    (volume(name=""), f"{V0}.name"),
    (volume(name="a/b"), f"{V0}.name"),
    (volume(driver="floppy"), f"{V0}.driver"),
    (volume(size_gb=-1), f"{V0}.size_gb"),
    (volume(size_gb=BIG), f"{V0}.size_gb"),
    (volume(access_mode="Sometimes"), f"{V0}.access_mode"),
    (volume(fs_type="a b"), f"{V0}.fs_type"),
    (volume(mount_path="data"), f"{V0}.mount_path"),
    (volume(retain_policy="Keep"), f"{V0}.retain_policy"),
    (container(managed_volumes=[pb.ManagedVolumeSpec(name="D", mount_path="/1"),
                                pb.ManagedVolumeSpec(name="d", mount_path="/2")]),
     "spec.container.managed_volumes[1].name"),
    (container(managed_volumes=[pb.ManagedVolumeSpec(name=f"v{n}", mount_path=f"/{n}")
                                for n in range(25)]),
     "spec.container.managed_volumes"),
    (with_metadata(persys__scheduling__strategy="best"),
     "spec.metadata[persys.scheduling.strategy]"),
    (with_metadata(persys__scheduling__stategy="x"), "spec.metadata[persys.scheduling.stategy]"),
    (with_metadata(persys__vm_spec_b64="e30="), B64),
    (compose(inline_yaml="", git_repo=""), "spec.compose.inline_yaml"),
    (compose(inline_yaml="a: ["), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services:"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services: {}"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services:\n  web: nginx"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="- a"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services: {on: {}, 'True': {}}"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services: {a: {x: [{b: 1, 'b': 2}]}}"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services: {a: {}, ? [b] : {}}"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="c2VydmljZXM6Cg=="), "spec.compose.inline_yaml"),
    (compose(inline_yaml="services:\n  w: {}\n---\nb: 1"), "spec.compose.inline_yaml"),
    (compose(inline_yaml="[" * 5000), "spec.compose.inline_yaml"),
    (compose(inline_yaml="x" * 300_000), "spec.compose.inline_yaml"),
    (compose(source_type="svn"), "spec.compose.source_type"),
    (compose(source_type="git", inline_yaml=""), "spec.compose.git_repo"),
    (compose(git_repo="https://h/r"), "spec.compose.git_repo"),
    (compose(inline_yaml="", git_repo="--upload-pack=x"), "spec.compose.git_repo"),
    (compose(inline_yaml="", git_repo="file:///etc"), "spec.compose.git_repo"),
    (compose(inline_yaml="", git_repo="https://h/r", git_ref="-x"), "spec.compose.git_ref"),
    (vm(vcpus=-1), "spec.vm.vcpus"),
    (vm(vcpus=0), "spec.vm.vcpus"),
    (vm(memory_mb=BIG), "spec.vm.memory_mb"),
    (vm(disks=[pb.DiskConfig(size_gb=-1)]), "spec.vm.disks[0].size_gb"),
    (vm(disks=[pb.DiskConfig()] * 25), "spec.vm.disks"),
    (vm(networks=[pb.NetworkConfig(static_ip="10.0.0")]), "spec.vm.networks[0].static_ip"),
    (vm(networks=[pb.NetworkConfig(static_ip="10.0.0.1", dhcp=True)]),
     "spec.vm.networks[0].dhcp"),
    (payload([]), B64),
    (payload({"vcpus": "2", "memory_mb": 1}), f"{B64}.vcpus"),
    (payload({"vcpus": True, "memory_mb": 1}), f"{B64}.vcpus"),
    (payload({"vcpus": 1.5, "memory_mb": 1}), f"{B64}.vcpus"),
    (payload({"vcpus": float("nan"), "memory_mb": 1}), f"{B64}.vcpus"),
    (payload({"vcpus": 2, "memory_mb": 2**63}), f"{B64}.memory_mb"),
    (payload({"vcpus": 2, "memory_mb": "256m"}), f"{B64}.memory_mb"),
    (payload({"vcpus": 2, "memory_mb": 1, "disks": [{"size_gb": -1}]}), f"{B64}.disks[0].size_gb"),
    (payload({"vcpus": 2, "memory_mb": 1, "disks": ["x"]}), f"{B64}.disks[0]"),
    (payload({"vcpus": 2, "memory_mb": 1, "disks": {}}), f"{B64}.disks"),
    (payload({"vcpus": 2, "memory_mb": 1, "name": "\ud800"}), f"{B64}.name"),
    (payload({"vcpus": 2, "memory_mb": 1, "managed_volumes": [{"size_gb": 10**30}]}),
     f"{B64}.managed_volumes[0].size_gb"),
    (pb.WorkloadSpec(type="vm", metadata={"persys.vm_spec_b64": "%%"}), B64),
    (pb.WorkloadSpec(type="vm", metadata={"persys.vm_spec_b64": "e30"}), B64),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field"), WRONG, ids=[field for _, field in WRONG])
def test_each_wrong_field_is_named(spec: pb.WorkloadSpec, field: str) -> None:
    """A01: a wrong value is an error that names its field and what is accepted instead."""
    found = wrong(apply(spec))
    assert field in found
    assert len(found[field]) > 5


def test_all_wrong_fields_are_named_at_once() -> None:
    """A request with six faults is answered with six."""
    spec = ports((-1, 80))
    spec.container.image = ""
    spec.container.restart_policy = "x"
    spec.resources.memory_mb = -5
    found = wrong(apply(spec, workload_id="a/b", desired_state="Runing"))
    assert set(found) == {
        "workload_id", "spec.container.image", "spec.container.ports[0].host_port",
        "spec.container.restart_policy", "spec.resources.memory_mb", "desired_state",
    }  # fmt: skip
    assert "-5" in found["spec.resources.memory_mb"]
    assert "10000000000 MB" in found["spec.resources.memory_mb"]


@pytest.mark.parametrize("workload_id", ["", " ", "a/b", "-a", ".a", "a" * 254, "é", "a b", "a\n"])
def test_new_ids_follow_the_alphabet(workload_id: str) -> None:
    """A new workload's id is 1 to 253 plain characters (decisions, values: ids)."""
    assert "workload_id" in wrong(apply(container(), workload_id=workload_id))


@pytest.mark.parametrize("workload_id", ["a", "a" * 253, "A.b_c-1"])
def test_plain_ids_pass(workload_id: str) -> None:
    """The ends of the accepted range."""
    assert not wrong(apply(container(), workload_id=workload_id))


def test_odd_ids_of_the_past_can_be_named() -> None:
    """Workloads that another scheduler named oddly can be stopped and deleted."""
    assert named_workload("a/b status") == "a/b status"
    request = apply_workload(apply(None, workload_id="a/b", desired_state="Stopped"))
    assert request.desired_state is DesiredState.STOPPED
    with pytest.raises(InvalidInputError, match="workload_id is required"):
        named_workload(" ")


def test_a_change_of_desired_state_alone_has_no_spec() -> None:
    """Decisions 2.6: only id and desired state: spec and revision are kept."""
    request = apply_workload(apply(None, desired_state="Running"))
    assert request.spec is None
    assert set(wrong(apply(None))) == {"spec"}


@pytest.mark.parametrize(
    ("text", "state"),
    [("", None), ("Running", DesiredState.RUNNING), ("running", DesiredState.RUNNING),
     (" START ", DesiredState.RUNNING), ("stop", DesiredState.STOPPED),
     ("Stopped", DesiredState.STOPPED)],
)  # fmt: skip
def test_desired_states(text: str, state: DesiredState | None) -> None:
    """Running and Stopped in any case; nothing said is nothing wished."""
    assert apply_workload(apply(container(), desired_state=text)).desired_state is state


@pytest.mark.parametrize("text", ["Deleted", "delete"])
def test_deleting_is_not_a_desired_state(text: str) -> None:
    """The answer says which call to use."""
    assert "DeleteWorkload" in wrong(apply(container(), desired_state=text))["desired_state"]


def test_a_container_is_mapped_whole() -> None:
    """Every field arrives, privileged included (reference defect E5)."""
    message = container(
        command=["sh", "-c", "a\nb"], env={"K": "v"}, restart_policy="Always", privileged=True,
        ports=[pb.Port(host_port=8080, container_port=80)],
        volumes=[pb.VolumeMount(host_path="/h", container_path="/c", read_only=True)],
        managed_volumes=[pb.ManagedVolumeSpec(name="d", mount_path="/d", size_gb=5, driver="rbd")],
    )  # fmt: skip
    spec = spec_of(message)
    assert spec.resources == Resources.of(cpu_millicores=500, memory_mb=256, disk_gb=1)
    assert isinstance(spec.body, ContainerSpec)
    assert spec.body.command == ("sh", "-c", "a\nb")
    assert spec.body.privileged
    assert spec.body.restart_policy is RestartPolicy.ALWAYS
    assert spec.body.ports == (PortMapping(8080, 80, "tcp"),)
    assert spec.body.volumes[0].read_only
    assert spec.body.managed_volumes == (
        ManagedVolume("d", "ceph-rbd", 5, "ReadWriteOnce", "ext4", "/d", False, "Delete"),
    )


def test_zero_resources_are_accepted() -> None:
    """Decisions 2.7: existing command lines send none."""
    assert spec_of(resources()).resources == Resources()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("docker-container", "container"), ("Container", "container"), ("microvm", "microvm"),
     ("micro-vm", "microvm"), ("firecracker", "microvm"), ("docker-compose", "compose")],
)  # fmt: skip
def test_aliases_of_types(text: str, kind: str) -> None:
    """Old and new names of a type are one type."""
    by_kind: dict[str, Callable[[], pb.WorkloadSpec]] = {
        "container": container, "compose": compose, "microvm": vm,
    }  # fmt: skip
    message = by_kind[kind]()
    message.type = text
    assert spec_of(message).type == WorkloadType(kind)


def test_compose_by_yaml_and_by_git() -> None:
    """The source may be left out; what is set says it."""
    inline = spec_of(compose()).body
    assert isinstance(inline, ComposeSpec)
    assert inline.inline_yaml
    assert spec_of(compose(source_type="inline")).body == inline
    by_git = spec_of(compose(inline_yaml="", git_repo="git@h:o/r.git", git_ref="v1")).body
    assert isinstance(by_git, ComposeSpec)
    assert (by_git.git_repo, by_git.git_ref) == ("git@h:o/r.git", "v1")


def test_merge_keys_and_aliases_cannot_multiply() -> None:
    """A small YAML text that would unfold into millions of nodes is read in no time."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    text = "\n".join(lines) + "\nservices:\n  web: {image: nginx}\n"
    assert spec_of(compose(inline_yaml=text)).type is WorkloadType.COMPOSE


def test_a_machine_without_resources_is_charged_for_what_it_has() -> None:
    """Command lines send a machine's size in its body only; placement has to count it."""
    assert spec_of(vm()).resources == Resources.of(cpu_millicores=2000, memory_mb=2048)
    body = spec_of(vm(disks=[pb.DiskConfig(pool_name="p")])).body
    assert isinstance(body, VmSpec)
    assert (body.disks[0].size_gb, body.disks[0].format) == (20, "qcow2")


def test_a_machine_takes_its_size_from_the_resources() -> None:
    """The other way round: what is asked for is what the machine gets."""
    message = vm(vcpus=0, memory_mb=0)
    message.resources.CopyFrom(pb.ResourceRequirements(cpu_millicores=1500, memory_mb=512))
    body = spec_of(message).body
    assert isinstance(body, VmSpec)
    assert (body.vcpus, body.memory_mb) == (2, 512)


def test_the_payload_of_a_machine_wins() -> None:
    """persys.vm_spec_b64 replaces the reduced message and leaves the metadata."""
    message = payload(
        {
            "name": "db", "vcpus": 4, "memory_mb": 4096, "unknown": 1,
            "disks": [{"path": "/d.qcow2", "device": "vda", "boot": True, "size_gb": 9}],
            "networks": [{"network": "default", "ip_address": "10.0.0.5"}],
            "cloud_init": "#cloud-config", "cloud_init_config": {"password": "pw"},
            "metadata": {"k": "v"}, "managed_volumes": [{"name": "m", "mount_path": "/m"}],
        }
    )  # fmt: skip
    message.vm.vcpus = 1
    spec = spec_of(message)
    assert isinstance(spec.body, VmSpec)
    assert spec.metadata == {"team": "x"}
    assert (spec.body.vcpus, spec.body.name, spec.body.disks[0].boot) == (4, "db", True)
    assert spec.body.networks[0].static_ip == "10.0.0.5"
    assert spec.body.cloud_init.password == "pw"
    assert spec.body.managed_volumes[0].driver == "local"
    assert spec.resources.cpu_millicores == 4000


def test_a_microvm_runs_on_firecracker() -> None:
    """Said or not, the runtime of a microVM is the same."""
    message = vm()
    message.type = "microvm"
    body = spec_of(message).body
    assert isinstance(body, VmSpec)
    assert body.runtime == "firecracker"


def test_too_large_a_spec_is_refused() -> None:
    """Above 1 MiB nothing is looked at more closely."""
    message = container(command=["x" * 60_000] * 20)
    assert message.ByteSize() > MAX_SPEC_BYTES
    assert set(wrong(apply(message))) == {"spec"}


def test_messages_never_quote_secrets() -> None:
    """A04: wrong values that may be secrets are not in the error."""
    spec = compose(inline_yaml="", git_repo="ftp://u:s3cr3t@h/r", env={"PASSWORD": "s3cr3t\0"})
    with pytest.raises(InvalidInputError) as caught:
        apply_workload(apply(spec))
    assert "s3cr3t" not in str(caught.value)
    assert len(caught.value.errors) == 2


EXPLICIT: dict[str, tuple[pb.WorkloadSpec, pb.WorkloadSpec]] = {
    "restart_policy": (container(), container(restart_policy="no")),
    "protocol": (ports((0, 80)), ports((0, 80), protocol="TCP")),
    "driver": (volume(), volume(driver="local")),
    "access_mode": (volume(), volume(access_mode="ReadWriteOnce")),
    "retain_policy": (volume(), volume(retain_policy="delete")),
    "fs_type": (volume(driver="ceph-rbd"), volume(driver="ceph_rbd", fs_type="ext4")),
    "source_type": (compose(), compose(source_type="inline")),
    "type": (container(), typed(" Docker-Container ")),
    "disk size": (vm(disks=[pb.DiskConfig()]), vm(disks=[pb.DiskConfig(size_gb=20)])),
}


@pytest.mark.parametrize("name", EXPLICIT)
def test_defaults_may_be_written_or_left_out(name: str) -> None:
    """A02: leaving a field out and writing its default give the same revision."""
    short, long = EXPLICIT[name]
    assert spec_revision(spec_of(short)) == spec_revision(spec_of(long))


@pytest.mark.slow
@given(
    env=st.dictionaries(st.from_regex(r"[A-Z]{1,5}", fullmatch=True), st.text("ab", max_size=3)),
    chance=st.randoms(use_true_random=False),
)
def test_the_order_of_maps_does_not_count(env: dict[str, str], chance: object) -> None:
    """A02: the same maps in another order are the same spec."""
    items = list(env.items())
    chance.shuffle(items)  # type: ignore[attr-defined]
    shuffled = dict(items)
    first, second = container(env=env), container(env=shuffled)
    first.metadata.update(env)
    second.metadata.update(shuffled)
    assert spec_revision(spec_of(first)) == spec_revision(spec_of(second))


@pytest.mark.parametrize(
    "image",
    [
        "u:s3cr3t@reg/x y",
        "u:s3cr3t@reg/x",
        "https://u:s3cr3t@reg/x",
        "https://u:s3cr3t@reg/x y",
        "https://u:" + "s3cr3t" * 30 + "@reg/x y",
        "u:s3cr3t@reg/x@sha256:" + "a" * 64,
        "reg/x?token=s3cr3t",
        "u:s3cr3t@reg/\n",
    ],
)
def test_images_with_credentials_are_refused_unquoted(image: str) -> None:
    """A04: a name that is shown to everybody may hold none, and the error does not repeat them."""
    found = wrong(apply(container(image=image)))
    assert set(found) == {"spec.container.image"}
    assert "s3cr3t" not in found["spec.container.image"]


@pytest.mark.parametrize(
    "image", ["nginx", "reg:5000/a/b:1", "x@sha256:" + "a" * 64, "r/x:1@sha512:" + "0" * 128]
)
def test_images_with_ports_and_digests_are_accepted(image: str) -> None:
    """An @ before a digest is no sign of credentials."""
    assert wrong(apply(container(image=image))) == {}


def test_wrong_values_are_cleaned_before_they_are_cut() -> None:
    """Half of a URL does not look like one: its password would be shown."""
    assert quoted("https://u:" + "s3cr3t" * 20 + "@h/x") == '"https://***@h/x"'
