"""The folder of a project: the Compose file, what is laid over it, and its variables.

Decided here: who may read them. The folder is 0700 and every file in it 0600, from the first moment
on: they hold secrets. Without variables there is no file of them, so none outlives its revision
(defect 31). What an application has there by binds of relative paths is its data: it stays like a
named volume, and goes with it. Nothing is removed through a mount.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError
from persys_agent.storage.disk_file import remove_tree
from persys_agent.storage.mounts import Kernel, LinuxKernel
from persys_agent.storage.port import StorageFailedError

__all__ = [
    "COMPOSE_FILE",
    "ENV_FILE",
    "OVERLAY_FILE",
    "OWN_FILES",
    "Files",
    "ProjectFolder",
    "env_text",
]

COMPOSE_FILE = "compose.yaml"
OVERLAY_FILE = "persys.yaml"
ENV_FILE = ".env"
_NAMES = (COMPOSE_FILE, OVERLAY_FILE, ENV_FILE)
OWN_FILES = frozenset(_NAMES)
"""What nothing else in the folder may be called."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_DOLLAR = "${PERSYS_DOLLAR:-$}{"
"""How Compose v1 is kept from replacing what looks like a variable: by one that is not set."""


@frozen
class Files:
    """The content of each file; an empty one is no file."""

    compose: str = ""
    overlay: str = ""
    env: str = ""

    def by_name(self) -> Mapping[str, str]:
        """Contents by the names of their files."""
        return dict(zip(_NAMES, (self.compose, self.overlay, self.env), strict=True))


class ProjectFolder:
    """The folder ``name`` below ``root``; ``name`` is a project, which is never a path."""

    def __init__(self, root: Path, name: str, kernel: Kernel | None = None) -> None:
        self.path = root / name
        self._kernel = kernel or LinuxKernel()

    def exists(self) -> bool:
        """Whether Compose could be asked about the project."""
        return (self.path / COMPOSE_FILE).is_file()

    def has_env(self) -> bool:
        """Whether the project has variables."""
        return (self.path / ENV_FILE).is_file()

    def read(self) -> Files:
        """What there is."""
        return Files(*(self._read(name) for name in _NAMES))

    def write(self, files: Files) -> None:
        """Have exactly these files; each is replaced at once, or not touched."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        for name, content in files.by_name().items():
            if not content:
                (self.path / name).unlink(missing_ok=True)
            elif self._read(name) != content:
                _write_private(self.path / name, content)

    def data(self) -> frozenset[str]:
        """The names of what is not ours in the folder."""
        there = os.listdir(self.path) if self.path.is_dir() else ()
        return frozenset(there) - OWN_FILES

    def remove(self, keep: Collection[str] | None = None) -> None:
        """Take our files away, of the application's data all but what is to ``keep`` (``None``:
        nothing of it), and the folder where nothing is left in it. Raises ``RuntimeFailedError``
        where data cannot be removed."""
        for name in self.data() - set(keep) if keep is not None else ():
            self._remove_data(self.path / name)
        for name in _NAMES:
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()

    def _remove_data(self, path: Path) -> None:
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                remove_tree(path, self._kernel)
        except (OSError, StorageFailedError) as error:
            raise RuntimeFailedError(
                FailureCode.RUNTIME_ERROR,
                f"what the application keeps in its own folder cannot be removed: {error}",
            ) from error

    def _read(self, name: str) -> str:
        try:
            return (self.path / name).read_text()
        except FileNotFoundError:
            return ""


def env_text(env: Mapping[str, str], *, is_v1: bool) -> str:
    """The variables as Compose reads them back. Raises ``RuntimeFailedError`` for a bad name."""
    quote = _quoted_v1 if is_v1 else _quoted_v2
    return "".join(f"{_checked(name)}={quote(value)}\n" for name, value in sorted(env.items()))


def _checked(name: str) -> str:
    if not _NAME.match(name):
        raise RuntimeFailedError(
            FailureCode.INVALID_SPEC, f"{name!r} is no name of an environment variable"
        )
    return name


def _quoted_v1(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", _DOLLAR)
    return f"'{escaped}'"


def _quoted_v2(value: str) -> str:
    if "'" not in value:
        return f"'{value}'"
    for each in ("\\", '"', "$"):
        value = value.replace(each, f"\\{each}")
    return '"' + value.replace("\n", "\\n") + '"'


def _write_private(path: Path, content: str) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as sink:
        sink.write(content)
    temporary.replace(path)
