"""Where the paths of a Compose file may lead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from persys_agent.runtimes.compose.folder import OWN_FILES
from persys_agent.runtimes.compose.paths import check_paths
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError


def check(
    root: Path, service: Mapping[str, object], content: Mapping[str, object] | None = None
) -> None:
    check_paths({"web": service}, content or {}, root / "own", OWN_FILES)


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
