"""The files of a project are private, exact, and gone when they are not wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_agent.runtimes.compose.folder import Files, ProjectFolder, env_text
from persys_agent.runtimes.port import RuntimeFailedError
from persys_agent.storage.mounts import Mount


def test_files_are_private_and_exact(tmp_path: Path) -> None:
    """Folder 0700, files 0600, also where somebody had opened them; what is empty is no file."""
    folder = ProjectFolder(tmp_path / "root", "p")
    folder.write(Files("compose", "overlay", "A='b'\n"))
    folder.path.chmod(0o755)
    folder.write(Files("changed", "overlay", ""))
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {each.name for each in folder.path.iterdir()} == {"compose.yaml", "persys.yaml"}
    assert all(each.stat().st_mode & 0o777 == 0o600 for each in folder.path.iterdir())
    assert folder.read() == Files("changed", "overlay", "")
    assert not folder.has_env()


class Mounted:
    """A kernel that has something mounted at these points."""

    def __init__(self, *points: Path) -> None:
        self._points = points

    def mounts(self) -> list[Mount]:
        return [Mount(str(each), "ext4", "/dev/x") for each in self._points]

    def knows_filesystem(self, name: str) -> bool:
        return False

    def has_bus(self, name: str) -> bool:
        return False

    def is_root(self) -> bool:
        return True


def test_removal_takes_our_files_alone(tmp_path: Path) -> None:
    """What else is there stays, and the folder with it, until it is said what of it may go."""
    folder = ProjectFolder(tmp_path, "p")
    folder.write(Files("compose", "overlay"))
    (folder.path / "notes").write_text("mine")
    folder.remove()
    assert [each.name for each in folder.path.iterdir()] == ["notes"]
    (folder.path / "notes").unlink()
    folder.remove()
    assert not folder.path.exists()
    folder.remove()


def test_data_goes_with_the_application(tmp_path: Path) -> None:
    """Whatever relative binds made there, but for what was there before; a link is removed, and
    not what it leads to."""
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = ProjectFolder(tmp_path, "p", Mounted())
    folder.write(Files("compose", "overlay"))
    (folder.path / "data" / "deep").mkdir(parents=True)
    (folder.path / "data" / "deep" / "link").symlink_to(outside)
    (folder.path / "link").symlink_to(outside)
    (folder.path / "file").write_text("x")
    assert folder.data() == {"data", "link", "file"}
    folder.remove(keep={"file"})
    assert [each.name for each in folder.path.iterdir()] == ["file"]
    folder.remove(keep=())
    assert not folder.path.exists()
    assert outside.is_dir()


def test_nothing_is_removed_through_a_mount(tmp_path: Path) -> None:
    """What somebody mounted inside stops the removal, with the place; the data is untouched."""
    point = tmp_path / "p" / "data" / "mnt"
    folder = ProjectFolder(tmp_path, "p", Mounted(point))
    point.mkdir(parents=True)
    (point / "precious").write_text("x")
    with pytest.raises(RuntimeFailedError, match=f"is mounted at {point}"):
        folder.remove(keep=())
    assert (point / "precious").exists()


@pytest.mark.parametrize(
    ("value", "v1", "v2"),
    [
        ("plain", "'plain'", "'plain'"),
        ("it's", "'it\\'s'", '"it\'s"'),
        ("a\\b", "'a\\\\b'", "'a\\b'"),
        ("$A ${B}", "'$A ${PERSYS_DOLLAR:-$}{B}'", "'$A ${B}'"),
        ("'$\"\n", "'\\'$\"\n'", '"\'\\$\\"\\n"'),
    ],
)
def test_values_are_quoted_for_each_compose(value: str, v1: str, v2: str) -> None:
    """Nothing in a value is replaced by either version when it reads it back."""
    assert env_text({"X": value}, is_v1=True) == f"X={v1}\n"
    assert env_text({"X": value}, is_v1=False) == f"X={v2}\n"


@pytest.mark.parametrize("name", ["", "A B", "1A", "A=B", "A\nB"])
def test_names_are_names(name: str) -> None:
    """A name that could begin another line is refused."""
    with pytest.raises(RuntimeFailedError):
        env_text({name: "x"}, is_v1=True)
