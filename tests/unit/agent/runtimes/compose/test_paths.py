"""Where the paths of a Compose file may lead."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from persys_agent.runtimes.compose.folder import OWN_FILES
from persys_agent.runtimes.compose.paths import check_paths, check_readable
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError


def check(
    root: Path, service: Mapping[str, object], content: Mapping[str, object] | None = None
) -> None:
    check_paths({"web": service}, content or {}, root / "own", OWN_FILES, [root.parent / "agent"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("../x", "folder of another application"),
        ("./a/../../other", "folder of another application"),
        ("../../x", "leads out of the application's own folder"),
        ("{root}/other/data", "folder of another application"),
        ("{root}", "folder of another application"),
        (".", "agent's own files"),
        ("./a/..", "agent's own files"),
        ("./compose.yaml", "agent's own files"),
        ("{root}/own", "agent's own files"),
        ("./a\0b", "no path has a NUL in it"),
        ("./link/x", "leads out of the application's own folder"),
    ],
)
def test_no_path_leaves_the_project(tmp_path: Path, path: str, told: str) -> None:
    """However it is written, and over links that a container may have made."""
    root = tmp_path / "root"
    (root / "own").mkdir(parents=True)
    (root / "own" / "link").symlink_to(tmp_path)
    written = path.format(root=root)
    for volume in (f"{written}:/x", {"type": "bind", "source": written, "target": "/x"}):
        with pytest.raises(RuntimeFailedError, match=told) as raised:
            check(root, {"volumes": [volume]})
        assert str(raised.value).startswith(f'web: volumes: "{written}"')
        assert raised.value.code is FailureCode.INVALID_SPEC


@pytest.mark.parametrize(
    "service",
    [
        {"volumes": ["./data:/d", "data:/e", "/srv/x:/f", "/anonymous", "./a/../b:/g"]},
        {"env_file": "settings.env"},
        {"env_file": ["./.env", {"path": "/etc/x.env"}]},
    ],
)
def test_its_own_folder_and_the_hosts_are_open(
    tmp_path: Path, service: Mapping[str, object]
) -> None:
    """Relative paths inside, and absolute ones that are nobody's project."""
    check(tmp_path / "root", service)


def test_what_compose_reads_is_looked_at_too(tmp_path: Path) -> None:
    """Variables and secrets of other applications are in their folders."""
    with pytest.raises(RuntimeFailedError, match="env_file"):
        check(tmp_path, {"env_file": ["../other/.env"]})
    with pytest.raises(RuntimeFailedError, match="secrets s: file"):
        check(tmp_path, {}, {"secrets": {"s": {"file": "../other/.env"}}})
    device = {"v": {"driver_opts": {"device": str(tmp_path / "other")}}}
    with pytest.raises(RuntimeFailedError, match="volume v: device"):
        check(tmp_path, {}, {"volumes": device})


@pytest.mark.parametrize(
    "build",
    [
        "../other",
        {"context": "{root}/other", "dockerfile_inline": "FROM scratch"},
        {"context": "./b", "dockerfile": "../../other/.env"},
        {"context": "./b", "additional_contexts": {"o": "../other"}},
        {"context": "./b", "additional_contexts": ["x=./x", "o={root}/other"]},
    ],
)
def test_images_are_not_built_from_other_applications(tmp_path: Path, build: object) -> None:
    """Nor are labels read there."""
    written = json.loads(json.dumps(build).replace("{root}", str(tmp_path)))
    with pytest.raises(RuntimeFailedError, match=r"web: build\..*folder of another application"):
        check(tmp_path, {"build": written})
    with pytest.raises(RuntimeFailedError, match="web: label_file"):
        check(tmp_path, {"label_file": ["../other/.env"]})


@pytest.mark.parametrize(
    "build",
    [
        None,
        ".",
        "https://host.example/repository.git#main:folder",
        {"context": "./b", "dockerfile": "../Dockerfile"},
        {"context": "b", "additional_contexts": {"x": "docker-image://alpine", "y": "service:a"}},
    ],
)
def test_images_are_built_from_elsewhere(tmp_path: Path, build: object) -> None:
    """The own folder, and what is no folder at all."""
    check(tmp_path, {"build": build})


@pytest.mark.parametrize("path", ["{top}/agent", "{top}/agent/state.db", "{top}", "/", "/{top}/."])
def test_the_agents_own_data_is_nobodys(tmp_path: Path, path: str) -> None:
    """Neither it, nor what is in it, nor a folder that it is in."""
    written = path.format(top=tmp_path)
    for service in ({"volumes": [f"{written}:/x"]}, {"build": written}, {"env_file": written}):
        with pytest.raises(RuntimeFailedError, match="the agent keeps its own data there"):
            check(tmp_path / "root", service)


@pytest.mark.parametrize("key", ["env_file", "label_file"])
@pytest.mark.parametrize(
    "path",
    [
        "${DOCKER_HOST:+../other/}.env",
        "${UNKNOWN:-x}.env",
        "${STAGE:-${OTHER}}",
        "$PWD/../other/.env",
        "${STAGE",
    ],
)
def test_files_that_are_read_at_once_have_plain_names(key: str, path: str) -> None:
    """Compose may have variables that the agent knows nothing of, also by the names of the spec's,
    and reads such files before anybody could look at what it understands."""
    with pytest.raises(RuntimeFailedError, match=f"web: {key}: .*only variables of the workload"):
        check_readable({"web": {key: [{"path": path}]}}, {"STAGE": "x", "PWD": "y"})


def test_files_may_be_named_by_the_workloads_variables() -> None:
    """With a default too; a dollar that is written twice is none."""
    service = {"env_file": ["$STAGE.env", "${STAGE:-x}.env", "a$$b", ".env"]}
    check_readable({"web": service}, {"STAGE": "x"})
