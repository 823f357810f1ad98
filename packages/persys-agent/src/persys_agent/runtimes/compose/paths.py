"""The host's paths that a Compose file names, and where they may lead.

Decided here: what a service mounts of the host, and what Compose reads there for it. A path that is
not absolute stands for one inside the project's folder; it may not lead out of it, nor to the files
that Compose is run with, which a container could write otherwise. Folders of other projects are
nobody's business, however they are named.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attrs import evolve, frozen

from persys_agent.runtimes.compose.command_line import bare_environment
from persys_agent.runtimes.compose.reading import word
from persys_agent.runtimes.docker.documents import Document, document, text
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["HostPath", "check_paths", "mounted_paths"]

_FIRST_OF_PATHS = ("/", ".", "~")
_FILES = ("secrets", "configs")


@frozen
class HostPath:
    """A path as it is written: ``where`` is the service or the part of the file."""

    where: str
    key: str
    path: str


def mounted_paths(services: Mapping[str, Document], content: Document) -> Iterator[HostPath]:
    """All that is mounted into containers; ``~`` is the home that Compose has."""
    for found in (*_binds(services), *_volume_devices(content), *_mounted_files(content)):
        yield _expanded(found)


def check_paths(
    services: Mapping[str, Document], content: Document, folder: Path, own: frozenset[str]
) -> None:
    """Raises ``RuntimeFailedError`` for a path that leads where none may; ``folder`` is the
    project's, beside those of others, and ``own`` the names of our files there. Looks links up."""
    for each in _each_once(mounted_paths(services, content)):
        if problem := _problem(each.path, folder) or _own_problem(each.path, folder, own):
            raise _refused(each, problem)
    for each in _each_once(map(_expanded, _env_files(services))):
        if problem := _problem(each.path, folder):
            raise _refused(each, problem)


def _each_once(found: Iterable[HostPath]) -> Iterable[HostPath]:
    """What leads to the same place is looked up once, however often a file has it."""
    return {each.path: each for each in found}.values()


def _expanded(found: HostPath) -> HostPath:
    if "\0" in found.path:
        raise _refused(found, "no path has a NUL in it")
    if found.path == "~" or found.path.startswith("~/"):
        home = bare_environment()["HOME"]  # the agent's own may be none
        return evolve(found, path=os.path.join(home, found.path[2:]))
    return evolve(found, path=os.path.expanduser(found.path))


def _binds(services: Mapping[str, Document]) -> Iterator[HostPath]:
    for name, service in services.items():
        for volume in _listed(service.get("volumes")):
            if source := _source(volume):
                yield HostPath(name, "volumes", source)


def _source(volume: object) -> str:
    if isinstance(volume, Mapping):
        return text(volume, "source") if volume.get("type") == "bind" else ""
    source, colon, _ = word(volume).partition(":")
    return source if colon and source.startswith(_FIRST_OF_PATHS) else ""


def _volume_devices(content: Document) -> Iterator[HostPath]:
    """A named volume of driver local may be a bind by another name."""
    for name in document(content, "volumes"):
        device = text(content, "volumes", name, "driver_opts", "device")
        if device.startswith(_FIRST_OF_PATHS):
            yield HostPath(f"volume {name}", "device", device)


def _mounted_files(content: Document) -> Iterator[HostPath]:
    for part in _FILES:
        for name in document(content, part):
            if path := text(content, part, name, "file"):
                yield HostPath(f"{part} {name}", "file", path)


def _env_files(services: Mapping[str, Document]) -> Iterator[HostPath]:
    for name, service in services.items():
        for each in _listed(service.get("env_file")):
            path = text(each, "path") if isinstance(each, Mapping) else word(each)
            yield HostPath(name, "env_file", path)


def _listed(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _problem(path: str, folder: Path) -> str:
    """Where it may not lead, however it is written."""
    root = os.path.realpath(folder.parent)
    meant = os.path.normpath(folder / path)
    for seen in (meant, os.path.realpath(meant)):
        inside = _is_inside(seen, str(folder)) or _is_inside(seen, os.path.realpath(folder))
        if not inside and _is_inside(seen, root):
            return "it leads into the folder of another application"
        if not inside and not os.path.isabs(path):
            return "it leads out of the application's own folder; write a path that begins with /"
    return ""


def _own_problem(path: str, folder: Path, own: frozenset[str]) -> str:
    real, files = os.path.realpath(folder / path), os.path.realpath(folder)
    if real == files or (os.path.dirname(real) == files and os.path.basename(real) in own):
        return "the agent's own files are there; name another folder, such as ./data"
    return ""


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _refused(found: HostPath, problem: str) -> RuntimeFailedError:
    return RuntimeFailedError(
        FailureCode.INVALID_SPEC, f'{found.where}: {found.key}: "{found.path}": {problem}'
    )
