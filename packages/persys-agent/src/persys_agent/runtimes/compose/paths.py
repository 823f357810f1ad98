"""The host's paths that a Compose file names, and where they may lead.

Decided here: what a service mounts of the host, and what Compose reads there for it. A path that is
not absolute stands for one inside the project's folder; it may not lead out of it, nor to the files
that Compose is run with, which a container could write otherwise. Folders of other projects are
nobody's business, however they are named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve, frozen

from persys_agent.runtimes.compose.command_line import bare_environment
from persys_agent.runtimes.compose.reading import is_readable, word
from persys_agent.runtimes.docker.documents import Document, document, text
from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["HostPath", "check_paths", "check_readable", "mounted_paths"]

_FIRST_OF_PATHS = ("/", ".", "~")
_OF_OTHERS = re.compile(
    r"(?:BUILDKIT|BUILDX|COMPOSE|DOCKER|LC|LD|OTEL|PYTHON)_|(?:PWD|OLDPWD|SHLVL|LANG|_)\Z"
)
"""What Compose, or what calls it, may set by itself: the spec's value would not count."""
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
    services: Mapping[str, Document],
    content: Document,
    folder: Path,
    own: frozenset[str],
    private: Sequence[Path] = (),
) -> None:
    """Raises ``RuntimeFailedError`` for a path that leads where none may; ``folder`` is the
    project's, beside those of others, ``own`` the names of our files there, and ``private`` what
    else is the agent's alone. Looks links up."""
    for each in _each_once(mounted_paths(services, content)):
        problem = _problem(each.path, folder) or _own_problem(each.path, folder, own)
        if problem := problem or _private_problem(each.path, folder, private):
            raise _refused(each, problem)
    read = (*_read_files(services), *_contexts(services))
    for each in _each_once(map(_expanded, read)):
        if problem := _problem(each.path, folder) or _private_problem(each.path, folder, private):
            raise _refused(each, problem)


def check_readable(services: Mapping[str, Document], env: Mapping[str, str]) -> None:
    """Raises ``RuntimeFailedError`` for files that Compose reads at once, where variables in their
    names may have values that only Compose knows; all other paths are looked at once more in what
    it understands of the file."""
    known = {name for name in env if not _OF_OTHERS.match(name)} | set(bare_environment())
    for each in _read_files(services):
        if not is_readable(each.path, known):
            raise _refused(
                each,
                "only variables of the workload's own env can stand there, written $NAME or"
                " ${NAME}, and with words that have no variable in them",
            )


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


def _read_files(services: Mapping[str, Document]) -> Iterator[HostPath]:
    for name, service in services.items():
        for key in ("env_file", "label_file"):
            for each in _listed(service.get(key)):
                path = text(each, "path") if isinstance(each, Mapping) else word(each)
                yield HostPath(name, key, path)


def _contexts(services: Mapping[str, Document]) -> Iterator[HostPath]:
    """What images are built from. Addresses look like paths inside of the folder: let them."""
    for name, service in services.items():
        build = service.get("build")
        if not build:
            continue
        if not isinstance(build, Mapping):
            build = {"context": word(build)}
        context = text(build, "context") or "."
        dockerfile = text(build, "dockerfile") or "Dockerfile"
        yield HostPath(name, "build.context", context)
        yield HostPath(name, "build.dockerfile", os.path.join(context, dockerfile))
        more = build.get("additional_contexts")
        if isinstance(more, list):
            more = dict(word(each).partition("=")[::2] for each in more)
        for each in more.values() if isinstance(more, Mapping) else ():
            yield HostPath(name, "build.additional_contexts", word(each))


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


def _private_problem(path: str, folder: Path, private: Sequence[Path]) -> str:
    """A folder above what is private holds it too."""
    meant = os.path.normpath(folder / path)
    if _is_inside(os.path.realpath(meant), os.path.realpath(folder)):
        return ""
    for seen in (meant, os.path.realpath(meant)):
        for each in private:
            kept = os.path.realpath(each)
            if _is_inside(seen, kept) or _is_inside(kept, seen) or _is_inside(str(each), seen):
                return "the agent keeps its own data there, with that of other applications"
    return ""


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _refused(found: HostPath, problem: str) -> RuntimeFailedError:
    return RuntimeFailedError(
        FailureCode.INVALID_SPEC, f'{found.where}: {found.key}: "{found.path}": {problem}'
    )
