"""Manifests: what is accepted, what it becomes, and every error at once."""

from __future__ import annotations

import io
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest import LoadedManifest, ManifestError, load_files

HEAD = "apiVersion: persys.io/v1\nkind: Workload\nmetadata: {name: web}\n"


def load(folder: Path, text: str, name: str = "web.yaml") -> list[LoadedManifest]:
    """The documents of one file."""
    path = folder / name
    path.write_text(dedent(text))
    return load_files([path])


def request(folder: Path, spec: str) -> pb.ApplyWorkloadRequest:
    """The request of one document with ``spec``."""
    return load(folder, HEAD + "spec:\n" + _indented(spec))[0].request


def problems(folder: Path, text: str, name: str = "web.yaml") -> list[str]:
    """What is wrong with one file, without the folder."""
    with pytest.raises(ManifestError) as caught:
        load(folder, text, name)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def spec_problems(folder: Path, spec: str) -> list[str]:
    """What is wrong with one ``spec``, without where the document stands."""
    found = problems(folder, HEAD + "spec:\n" + _indented(spec))
    return [problem.removeprefix("web.yaml:1:") for problem in found]


def _indented(spec: str) -> str:
    return "".join(f"  {line}\n" for line in dedent(spec).strip().splitlines())


def test_a_container_with_everything(tmp_path: Path) -> None:
    """Each key of a container fills its field of the contract."""
    got = request(
        tmp_path,
        """
        type: container
        image: nginx:1.27
        command: [nginx]
        args: [-g, daemon off;]
        env: {DEBUG: yes, VERSION: 1.10, EMPTY: ''}
        ports:
          - {host: 8080, container: 80}
          - {container: 53, protocol: UDP}
          - 22:22
        volumes:
          - {host: /srv, container: /data, readOnly: true}
          - /a:/b:ro
        managedVolumes:
          - {name: d, driver: nfs, size: 10Gi, accessMode: ReadWriteOnce, fsType: ext4,
             mountPath: /d, readOnly: true, retainPolicy: retain}
        restartPolicy: on-failure
        privileged: true
        resources: {cpu: 500m, memory: 0.5Gi, disk: 1Ti}
        desiredState: stopped
        """,
    )
    expected = pb.ContainerSpec(
        image="nginx:1.27",
        command=["nginx", "-g", "daemon off;"],
        env={"DEBUG": "yes", "VERSION": "1.10", "EMPTY": ""},
        ports=[
            pb.Port(host_port=8080, container_port=80, protocol="tcp"),
            pb.Port(container_port=53, protocol="udp"),
            pb.Port(host_port=22, container_port=22, protocol="tcp"),
        ],
        volumes=[
            pb.VolumeMount(host_path="/srv", container_path="/data", read_only=True),
            pb.VolumeMount(host_path="/a", container_path="/b", read_only=True),
        ],
        managed_volumes=[
            pb.ManagedVolumeSpec(
                name="d",
                driver="nfs",
                size_gb=10,
                access_mode="ReadWriteOnce",
                fs_type="ext4",
                mount_path="/d",
                read_only=True,
                retain_policy="Retain",
            )
        ],
        restart_policy="on-failure",
        privileged=True,
    )
    assert got.spec.container == expected
    resources = pb.ResourceRequirements(cpu_millicores=500, memory_mb=512, disk_gb=1024)
    assert got.spec.resources == resources
    assert (got.workload_id, got.spec.type, got.desired_state) == ("web", "container", "Stopped")


def test_placement_becomes_metadata(tmp_path: Path) -> None:
    """Placement keys become persys.scheduling.* metadata, labels become metadata as they are."""
    text = """
    apiVersion: persys.io/v1
    kind: Workload
    metadata: {name: web, labels: {app: shop, country: no}}
    spec:
      type: container
      image: nginx
      nodeSelector: {disk: ssd, gpu: yes}
      tolerations:
        - dedicated=gpu:NoSchedule
        - {key: spot, effect: noexecute}
        - {key: zone, value: ''}
      antiAffinity: {app: shop, tier: front}
      spreadBy: zone
      excludeNodes: [n1, n2]
      strategy: binpack
      priority: -5
      persistence: node-local
      allowMove: false
      nodeSystem: true
      diskIds: [disk-1]
    """
    metadata = dict(load(tmp_path, text)[0].request.spec.metadata)
    assert metadata == {
        "app": "shop",
        "country": "no",
        "persys.scheduling.node_selector.disk": "ssd",
        "persys.scheduling.node_selector.gpu": "yes",
        "persys.scheduling.tolerations": "dedicated=gpu:NoSchedule,spot:NoExecute,zone=",
        "persys.scheduling.anti_affinity": "app=shop,tier=front",
        "persys.scheduling.spread_by": "zone",
        "persys.scheduling.exclude_nodes": "n1,n2",
        "persys.scheduling.strategy": "binpack",
        "persys.scheduling.priority": "-5",
        "persys.scheduling.persistence_class": "node-local",
        "persys.scheduling.allow_move": "false",
        "persys.scheduling.node_system": "true",
        "persys.disk.ids": "disk-1",
    }


def test_nothing_wished_is_nothing_sent(tmp_path: Path) -> None:
    """Keys that are not written leave no trace, so equal wishes stay equal requests."""
    got = request(tmp_path, "type: container\nimage: nginx\nenv:\nports:\n")
    assert got == pb.ApplyWorkloadRequest(
        workload_id="web",
        spec=pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(),
            container=pb.ContainerSpec(image="nginx"),
        ),
    )


def test_compose_from_a_file_beside_the_manifest(tmp_path: Path) -> None:
    """A composeFile is read relative to the manifest, wherever the command runs."""
    (tmp_path / "shop.compose.yaml").write_text("services: {a: {image: b}}\n")
    got = request(tmp_path, "type: compose\ncomposeFile: shop.compose.yaml\nenv: {A: 1}\n")
    assert got.spec.compose == pb.ComposeSpec(
        source_type="inline", inline_yaml="services: {a: {image: b}}\n", env={"A": "1"}
    )


def test_compose_inline_and_from_git(tmp_path: Path) -> None:
    """Inline text stays as written; a git source has a ref, main where none is named."""
    inline = request(tmp_path, "type: compose\ncompose: |\n  services:\n    a: {image: b}\n")
    assert inline.spec.compose.inline_yaml == "services:\n  a: {image: b}\n"
    git = request(tmp_path, "type: docker-compose\ngit: {url: https://git.example/x.git}\n")
    assert git.spec.type == "compose"
    assert git.spec.compose == pb.ComposeSpec(
        source_type="git", git_repo="https://git.example/x.git", git_ref="main"
    )


def test_a_machine(tmp_path: Path) -> None:
    """A machine asks for its own size; what resources says comes first."""
    got = request(
        tmp_path,
        """
        type: firecracker
        vm:
          vcpus: 2
          memory: 2Gi
          osImage: ubuntu
          disks: [{size: 10Gi, pool: fast, mountPoint: /}, {size: 5Gi}]
          networks: [{bridge: br0, dhcp: true, staticIp: 10.0.0.2}]
          cloudInit: {userData: u, metaData: m, networkConfig: n, vendorData: v}
        resources: {memory: 3Gi}
        """,
    )
    assert got.spec.type == "microvm"
    assert got.spec.resources == pb.ResourceRequirements(
        cpu_millicores=2000, memory_mb=3072, disk_gb=15
    )
    assert got.spec.vm == pb.VMSpec(
        vcpus=2,
        memory_mb=2048,
        os_image="ubuntu",
        disks=[
            pb.DiskConfig(size_gb=10, pool_name="fast", mount_point="/"),
            pb.DiskConfig(size_gb=5),
        ],
        networks=[pb.NetworkConfig(bridge="br0", dhcp=True, static_ip="10.0.0.2")],
        cloud_init=pb.CloudInitConfig(
            user_data="u", meta_data="m", network_config="n", vendor_data="v"
        ),
    )


def test_every_error_of_a_document_at_once(tmp_path: Path) -> None:
    """Each problem is told with file, document, path and line; a near miss is suggested."""
    text = """\
    apiVersion: persys.io/v1
    kind: Workload
    metadata: {name: web}
    spec: {type: container, image: nginx}
    ---
    apiVersion: persys.io/v1
    kind: Workload
    metadata: {name: -bad-, label: {}}
    spec:
      type: container
      imgae: nginx
      ports: [{host: 70000, container: 80}, 22:99999]
      resources: {memory: 256m, cpu: true}
      restartPolicy: sometimes
      privileged: "yes"
    """
    assert problems(tmp_path, text) == [
        "web.yaml:2:metadata.name (line 8): '-bad-' is not a valid name: 1 to 253 letters,"
        " digits, '.', '_' or '-', the first one a letter or a digit",
        "web.yaml:2:metadata.label (line 8): unknown key; did you mean 'labels'?",
        "web.yaml:2:spec.ports[0].host (line 12): '70000' is not a whole number from 0 to 65535",
        "web.yaml:2:spec.ports[1] (line 12): '22:99999': ports go from 1 to 65535",
        "web.yaml:2:spec.restartPolicy (line 14): 'sometimes' is not accepted; write one of no,"
        " always, on-failure, unless-stopped",
        "web.yaml:2:spec.privileged (line 15): 'yes' is not a truth value; write true or false,"
        " without quotes",
        "web.yaml:2:spec.resources.cpu (line 13): is the truth value true; a quantity is wanted",
        "web.yaml:2:spec.resources.memory (line 13): '256m': 'm' means a thousandth, which is no"
        " unit of size; write Ki, Mi, Gi, Ti (or MB, GB, TB, which mean the same here)",
        "web.yaml:2:spec (line 10): needs image; write for example image: nginx:1.27",
        "web.yaml:2:spec.imgae (line 11): unknown key; did you mean 'image'?",
    ]


@pytest.mark.parametrize("value", ["256m", "-1", "50E", "NaN", "1e400", ".nan", "true", "''", "~"])
def test_wrong_memory_names_field_and_value(tmp_path: Path, value: str) -> None:
    """A01: in YAML, too, each wrong quantity is one error at its own path."""
    found = spec_problems(
        tmp_path, f"type: container\nimage: nginx\nresources: {{memory: {value}}}\n"
    )
    assert len(found) == 1
    assert found[0].startswith("spec.resources.memory (line 7): ")


@pytest.mark.parametrize(
    "value", ['"256m"', "-1", '"50E"', "NaN", "1e400", "true", '""', "null", "[1]", str(2**63)]
)
def test_wrong_memory_in_json(tmp_path: Path, value: str) -> None:
    """A01: the same table holds for JSON manifests."""
    text = (
        '{"apiVersion": "persys.io/v1", "kind": "Workload", "metadata": {"name": "web"},'
        ' "spec": {"type": "container", "image": "nginx", "resources": {"memory": %s}}}'
    )
    found = problems(tmp_path, text % value, "web.json")
    assert len(found) == 1
    assert found[0].startswith("web.json:1:spec.resources.memory: ")


def test_bare_no_is_the_word_no(tmp_path: Path) -> None:
    """A restart policy of bare `no` is understood, not read as the truth value false."""
    got = request(tmp_path, "type: container\nimage: nginx\nrestartPolicy: no\n")
    assert got.spec.container.restart_policy == "no"


def test_false_is_no_restart_policy(tmp_path: Path) -> None:
    """`false` is refused with the accepted words."""
    found = spec_problems(tmp_path, "type: container\nimage: nginx\nrestartPolicy: false\n")
    assert found == [
        "spec.restartPolicy (line 7): 'false' is not accepted; write one of no, always,"
        " on-failure, unless-stopped"
    ]


@pytest.mark.parametrize("port", ["010", "0x50", "80.0", "1_0", "8e1", "true", "''"])
def test_ports_are_plain_digits(tmp_path: Path, port: str) -> None:
    """Octal, hexadecimal, fractions and other spellings of YAML 1.1 are no port numbers."""
    found = spec_problems(tmp_path, f"type: container\nimage: x\nports: [{{container: {port}}}]\n")
    assert len(found) == 1
    assert found[0].startswith("spec.ports[0].container (line 7): ")


def test_double_keys_are_errors(tmp_path: Path) -> None:
    """A key that stands twice is an error in YAML and in JSON."""
    found = spec_problems(tmp_path, "type: container\nimage: a\nimage: b\n")
    assert found == ["spec.image (line 7): this key stands here twice"]
    text = '{"workloadId": "a", "workloadId": "b"}'
    assert problems(tmp_path, text, "a.json") == ["a.json:1:workloadId: this key stands here twice"]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ("type: containr\nimage: x", "did you mean 'container'?"),
        ("image: x", "type is missing"),
        ("type: container\nimage:", "spec.image (line 6): has no value"),
        ("type: container\nimage: ''", "spec.image (line 6): is empty"),
        ("type: container\nimage: [a]", "must be a single value, not a list"),
        ("type: container\nimage: x\nenv: [A=1]", "must be a mapping of names to texts"),
        ("type: container\nimage: x\nenv: {A: }", "spec.env.A (line 7): has no value"),
        ("type: container\nimage: x\ncommand: echo hi", "must be a list of words"),
        ("type: container\nimage: x\nvm: {vcpus: 1, memory: 1Gi}", "of no use for type container"),
        ("type: container\nimage: x\nports: [1:2:3]", "'1:2:3' is not a port"),
        ("type: container\nimage: x\nports: [80:80, 80:81]", "host port 80/tcp is used twice"),
        ("type: container\nimage: x\nvolumes: [/a]", "'/a' is not a volume"),
        ("type: container\nimage: x\nmanagedVolumes: [{name: d}]", "size is missing"),
        ("type: container\nimage: x\ntolerations: ['a=b:Sometimes']", "key[=value][:Effect]"),
        ("type: container\nimage: x\nnodeSelector: {a: 'b,c'}", "no blank, comma or semicolon"),
        ("type: container\nimage: x\nexcludeNodes: ['n1,n2']", "must be one word"),
        ("type: container\nimage: x\npriority: 1.5", "not a whole number from -1000000"),
        ("type: container\nimage: x\nstrategy: pack", "'pack' is not accepted"),
        ("type: container\nimage: x\nallowMove: yes", "is not a truth value"),
        ("type: container\nimage: x\nresources: 2", "must be a mapping of keys"),
        ("type: container\nimage: x\nresources: {mem: 1Gi}", "did you mean 'memory'?"),
        ("type: compose", "needs one of compose, composeFile, git"),
        ("type: compose\ncompose: a\ngit: {url: x}", "compose and git exclude each other"),
        ("type: compose\ncompose: 'web: 1'", "the Compose text has no services"),
        ("type: compose\ncompose: '{'", "the Compose text is not valid YAML"),
        ("type: compose\ncompose: {services: {}}", "must be a single value, not a mapping"),
        ("type: compose\ncomposeFile: no.yaml", "cannot be read: No such file"),
        ("type: vm", "needs vm; write for example"),
        ("type: vm\nvm: {memory: 1Gi}", "vcpus is missing"),
        ("type: vm\nvm: {vcpus: 0, memory: 1Gi}", "not a whole number from 1"),
        ("type: vm\nvm: {vcpus: 1, memory: 1Gi, cpu: 2}", "unknown key"),
    ],
)
def test_wrong_specs(tmp_path: Path, spec: str, part: str) -> None:
    """Each wrong spec is refused with the words that help."""
    assert part in "\n".join(spec_problems(tmp_path, spec))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("services: {a: {image: b}}", "this is a Compose file"),
        ("kind: Deployment\napiVersion: apps/v1", "'Deployment' is not accepted"),
        ("- a", "must be a mapping of keys, not a list"),
        ("just words", "must be a mapping of keys, not the single value"),
        ("a: [", "web.yaml:1 (line 1): not valid YAML"),
        ("a: b\n---\na: 'x", "web.yaml:2 (line 3): not valid YAML"),
        ("", "holds no document"),
        ("---\n---\n", "holds no document"),
        ("a: !!python/object:os.system x", "is not supported"),
        ("a: &a [*a]", "does an alias contain itself?"),
        ("[" * 5000, "deep"),
        ("? {a: b}\n: c", "a key must be a plain word"),
        (HEAD, "spec is missing"),
        (HEAD + "spec:\n", "spec (line 4): must be a mapping of keys, not nothing"),
        ("kind: Workload\nspec: {type: container, image: x}", "apiVersion is missing"),
    ],
)
def test_wrong_documents(tmp_path: Path, text: str, part: str) -> None:
    """What is no Workload document is told so, without a traceback."""
    assert part in "\n".join(problems(tmp_path, text))


@pytest.mark.slow
def test_a_bomb_of_aliases_is_refused(tmp_path: Path) -> None:
    """Aliases that multiply are cut off before they fill the memory."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 9):
        aliases = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    assert "too deep or too large" in problems(tmp_path, "\n".join(lines))[0]


def test_anchors_and_merges_are_understood(tmp_path: Path) -> None:
    """Shared parts may be written once; a key of its own wins over a merged one."""
    text = """
    apiVersion: persys.io/v1
    kind: Workload
    metadata: {name: web, labels: &common {app: shop, tier: front}}
    spec:
      type: container
      image: nginx
      env: {<<: *common, tier: back}
    """
    got = load(tmp_path, text)[0].request.spec.container.env
    assert dict(got) == {"app": "shop", "tier": "back"}


def test_labels_may_not_smuggle_placement(tmp_path: Path) -> None:
    """Placement is written in spec, where it is checked; as a label it is refused."""
    text = HEAD.replace("{name: web}", "{name: web, labels: {persys.scheduling.strategy: x}}")
    text += "spec: {type: container, image: x}\n"
    assert "placement is written in spec" in problems(tmp_path, text)[0]


KEYS = st.sampled_from(
    ["type", "image", "ports", "vm", "compose", "git", "resources", "cpu", "memory", "size",
     "tolerations", "key", "effect", "env", "host", "container", "disks", "url", "x"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["container", "compose", "vm", "256Mi", "80:80"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(spec=VALUES, metadata=VALUES)
def test_no_document_is_a_crash(spec: object, metadata: object) -> None:
    """Whatever stands in a document, it is a request or a list of problems."""
    document = {"apiVersion": "persys.io/v1", "kind": "Workload"}
    text = yaml.safe_dump({**document, "metadata": metadata, "spec": spec})
    try:
        loaded = load_files(["-"], io.StringIO(text))
    except ManifestError as error:
        assert error.problems  # noqa: PT017 - both ways are right
    else:
        assert loaded[0].workload_id


@pytest.mark.slow
@given(document=VALUES)
def test_no_proto_json_is_a_crash(document: object) -> None:
    """The same holds for documents in the contract's own form."""
    text = yaml.safe_dump({"workloadId": "x", "spec": document})
    try:
        load_files(["-"], io.StringIO(text))
    except ManifestError as error:
        assert error.problems  # noqa: PT017 - both ways are right
