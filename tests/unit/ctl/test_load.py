"""Which files are read, and that one bad document refuses all."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest import ManifestError, load_files

EXAMPLES = Path(__file__).parents[3] / "examples"
GOOD = (
    "apiVersion: persys.io/v1\nkind: Workload\nmetadata: {name: %s}\n"
    "spec: {type: container, image: nginx}\n"
)


def texts(error: ManifestError) -> str:
    """All problems as one text."""
    return "\n".join(str(problem) for problem in error.problems)


def test_several_documents_files_and_directories(tmp_path: Path) -> None:
    """Documents keep their order: file by file as named, a directory by name of file."""
    (tmp_path / "first.yaml").write_text(GOOD % "c" + "---\n" + GOOD % "d")
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "b.yml").write_text(GOOD % "b")
    (folder / "a.json").write_text('{"workloadId": "a"}')
    for ignored in (".hidden.yaml", "readme.txt", "shop.compose.yaml", "docker-compose.yml"):
        (folder / ignored).write_text("services: {}")
    loaded = load_files([tmp_path / "first.yaml", folder])
    assert [manifest.workload_id for manifest in loaded] == ["c", "d", "a", "b"]
    assert str(loaded[1].origin) == f"{tmp_path}/first.yaml:2"


def test_standard_input() -> None:
    """A dash is standard input."""
    loaded = load_files(["-"], io.StringIO(GOOD % "x"))
    assert [(manifest.workload_id, str(manifest.origin)) for manifest in loaded] == [
        ("x", "stdin:1")
    ]


def test_one_bad_document_refuses_all(tmp_path: Path) -> None:
    """Problems of all files come together, and nothing is loaded."""
    (tmp_path / "a.yaml").write_text(GOOD % "a")
    (tmp_path / "b.yaml").write_text((GOOD % "b").replace("nginx", "''"))
    (tmp_path / "c.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError) as caught:
        load_files([tmp_path, tmp_path / "missing.yaml"])
    found = texts(caught.value)
    assert len(caught.value.problems) == 3
    assert "b.yaml:1:spec.image" in found
    assert "is not UTF-8 text" in found
    assert "missing.yaml cannot be read: No such file or directory" in found


def test_a_name_may_be_used_once(tmp_path: Path) -> None:
    """Two documents for one workload would overwrite each other; they are refused."""
    (tmp_path / "a.yaml").write_text(GOOD % "a" + "---\n" + GOOD % "a")
    with pytest.raises(ManifestError, match=r"'a' is also the name in .*a\.yaml:1"):
        load_files([tmp_path / "a.yaml"])


def test_an_empty_directory_is_an_error(tmp_path: Path) -> None:
    """A directory without manifests is a mistake, not a success."""
    with pytest.raises(ManifestError, match="holds no"):
        load_files([tmp_path])


def test_proto_json_is_accepted(tmp_path: Path) -> None:
    """An ApplyWorkloadRequest in either name style of proto JSON is taken as it is."""
    (tmp_path / "a.json").write_text(
        '{"workloadId": "a", "desiredState": "Running", "revisionId": "v1", "spec": {"type":'
        ' "container", "resources": {"cpuMillicores": "500", "memory_mb": 64}, "container":'
        ' {"image": "x", "env": {"A": "1"}, "ports": [{"hostPort": 1, "containerPort": 2}],'
        ' "privileged": true, "command": ["a", "b"]}, "metadata": null}}'
    )
    assert load_files([tmp_path / "a.json"])[0].request == pb.ApplyWorkloadRequest(
        workload_id="a",
        desired_state="Running",
        revision_id="v1",
        spec=pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=500, memory_mb=64),
            container=pb.ContainerSpec(
                image="x",
                env={"A": "1"},
                ports=[pb.Port(host_port=1, container_port=2)],
                privileged=True,
                command=["a", "b"],
            ),
        ),
    )


def test_proto_json_is_strict(tmp_path: Path) -> None:
    """Unknown fields, wrong kinds and two bodies are errors, all of them at once."""
    (tmp_path / "a.json").write_text(
        '{"workloadId": 5, "specs": {}, "workload_id": "x", "spec": {"resources":'
        ' {"cpuMillicores": true, "memoryMb": 9223372036854775808, "diskGb": 1.5},'
        ' "container": {"privileged": "yes", "ports": {}, "command": [1]}, "vm": {"vcpus":'
        ' 3000000000}, "metadata": {"a": 1}}}'
    )
    with pytest.raises(ManifestError) as caught:
        load_files([tmp_path / "a.json"])
    paths = [problem.path for problem in caught.value.problems]
    assert paths == [
        "workloadId",
        "specs",
        "workload_id",
        "spec.resources.cpuMillicores",
        "spec.resources.memoryMb",
        "spec.resources.diskGb",
        "spec.container.privileged",
        "spec.container.ports",
        "spec.container.command[0]",
        "spec.vm",
        "spec.metadata.a",
    ]
    assert "did you mean 'spec'?" in texts(caught.value)


def test_broken_json_names_the_line(tmp_path: Path) -> None:
    """A syntax error in JSON is told with its line."""
    (tmp_path / "a.json").write_text('{"a": 1,\n]')
    with pytest.raises(ManifestError, match=r"\(line 2\): not valid JSON"):
        load_files([tmp_path / "a.json"])


def test_yaml_may_begin_with_a_brace() -> None:
    """A document in YAML's flow style is not taken for broken JSON."""
    text = (
        "{apiVersion: persys.io/v1, kind: Workload, metadata: {name: a},"
        " spec: {type: container, image: x}}"
    )
    assert load_files(["-"], io.StringIO(text))[0].workload_id == "a"


def test_the_examples_are_right() -> None:
    """Every shipped example loads, and each kind of workload is among them."""
    loaded = load_files([EXAMPLES])
    kinds = {manifest.request.spec.type for manifest in loaded}
    assert kinds == {"container", "compose", "vm"}
    assert [manifest.workload_id for manifest in loaded] == [
        "big",
        "shop",
        "vm",
        "web",
        "worker",
        "migrate",
    ]


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
@pytest.mark.parametrize(
    "text",
    [
        '{"workloadId": "\\ud800"}',
        '{"workloadId": "a", "spec": {"\\udfff": 1}}',
        '{"apiVersion": "persys.io/v1", "kind": "Workload", "metadata": {"name": "a"},'
        ' "spec": {"type": "container", "image": "x", "env": {"A": "\\ud83d"}}}',
    ],
)
def test_half_characters_are_refused(tmp_path: Path, name: str, text: str) -> None:
    """What no UTF-8 text can hold is a problem of the manifest, as a value and as a key."""
    (tmp_path / name).write_text(text)
    with pytest.raises(ManifestError, match="half a character") as caught:
        load_files([tmp_path / name])
    texts(caught.value).encode()


def test_a_whole_pair_is_a_character(tmp_path: Path) -> None:
    """JSON may spell a character beyond the first 65536 as two escapes."""
    (tmp_path / "a.json").write_text('{"workloadId": "a", "revisionId": "\\ud83d\\ude00"}')
    assert load_files([tmp_path / "a.json"])[0].request.revision_id == "\U0001f600"


def test_a_file_without_an_end_is_refused() -> None:
    """Nothing is read beyond the limit."""
    with pytest.raises(ManifestError, match="/dev/zero is larger than 2048 KiB"):
        load_files(["/dev/zero"])


class Endless(io.StringIO):
    """A stream that never ends, and fails the test when all of it is asked for."""

    def read(self, size: int | None = -1, /) -> str:
        """As much as is asked for."""
        assert size is not None
        assert size >= 0
        return "x" * size


def test_standard_input_without_an_end_is_refused() -> None:
    """The same limit holds for a pipe."""
    with pytest.raises(ManifestError, match="it is larger than 2048 KiB"):
        load_files(["-"], Endless())


def test_standard_input_that_is_no_text_is_refused() -> None:
    """Bytes that are no UTF-8 are a problem with a place, not a traceback."""
    with pytest.raises(ManifestError, match=r"stdin.*is not UTF-8 text \(byte 1\)"):
        load_files(["-"], io.TextIOWrapper(io.BytesIO(b"a\xff"), "utf-8"))


def test_an_empty_path_is_not_the_current_folder() -> None:
    """An unset variable in a script must not apply whatever lies around."""
    with pytest.raises(ManifestError, match="names no file"):
        load_files([""])
