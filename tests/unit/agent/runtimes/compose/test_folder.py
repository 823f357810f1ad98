"""The files of a project are private, exact, and gone when they are not wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_agent.runtimes.compose.folder import Files, ProjectFolder, env_text
from persys_agent.runtimes.port import RuntimeFailedError


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


def test_removal_takes_our_files_alone(tmp_path: Path) -> None:
    """What somebody else put there stays, and the folder with it; nothing is removed by a tree."""
    folder = ProjectFolder(tmp_path, "p")
    folder.write(Files("compose", "overlay"))
    (folder.path / "notes").write_text("mine")
    folder.remove()
    assert [each.name for each in folder.path.iterdir()] == ["notes"]
    (folder.path / "notes").unlink()
    folder.remove()
    assert not folder.path.exists()
    folder.remove()


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
