"""From paths to requests: which files are read, and all or nothing.

Decided here: what a path stands for (a file, a directory, ``-``), that names are unique, and that
one bad document refuses all of them. Nothing is sent from here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import yaml

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest.problems import ManifestError, Origin, Problems
from persysctl.manifest.proto_json import looks_like_request, read_request
from persysctl.manifest.schema import WorkloadDocument, read_workload
from persysctl.manifest.section import Item
from persysctl.manifest.to_proto import to_request
from persysctl.manifest.tree import Node, json_trees, yaml_trees

__all__ = ["LoadedManifest", "load_files"]

STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadedManifest:
    """One document, checked: where it came from, and the request that it makes."""

    origin: Origin
    request: pb.ApplyWorkloadRequest

    @property
    def workload_id(self) -> str:
        """The id of the workload that it describes."""
        return self.request.workload_id


@dataclass(frozen=True, slots=True)
class _File:
    """A file under the name that the user knows; relative paths in it begin at ``folder``."""

    name: str
    text: str
    folder: Path


def load_files(paths: Iterable[str | Path], stdin: TextIO | None = None) -> list[LoadedManifest]:
    """Read every manifest that ``paths`` name: files, directories, or ``-`` for ``stdin``.

    A directory stands for its ``*.yaml``, ``*.yml`` and ``*.json`` files in order of name, without
    hidden files, sub-directories and Compose files (``*.compose.yaml``, ``docker-compose.yml`` …).
    Raises ``ManifestError`` that names every problem of every document.
    """
    problems = Problems()
    loaded = [
        manifest
        for file in _files([str(path) for path in paths], stdin or sys.stdin, problems)
        for manifest in _manifests(file, problems)
    ]
    _refuse_doubles(loaded, problems)
    if problems:
        raise ManifestError(problems)
    return loaded


# -------------------------------------------------------------------------- files


def _files(paths: Sequence[str], stdin: TextIO, problems: Problems) -> Iterator[_File]:
    if paths.count(STDIN) > 1:
        problems.add(Origin(STDIN), "", "standard input can be read once only")
    for path in dict.fromkeys(paths):
        if path == STDIN:
            yield from _standard_input(stdin, problems)
        elif not path:
            problems.add(Origin("-f"), "", "names no file; write a path, or - for standard input")
        elif Path(path).is_dir():
            yield from _directory(path, problems)
        else:
            yield from _one_file(path, problems)


def _standard_input(stdin: TextIO, problems: Problems) -> Iterator[_File]:
    try:
        text = stdin.read(_MAX_BYTES + 1)
    except UnicodeDecodeError as error:
        problems.add(Origin("stdin"), "", f"is not UTF-8 text (byte {error.start})")
        return
    if len(text) > _MAX_BYTES:
        problems.add(Origin("stdin"), "", _too_large("it"))
    else:
        yield _File("stdin", text, Path())


def _too_large(name: str) -> str:
    return f"{name} is larger than {_MAX_BYTES // 1024} KiB; is it a manifest?"


def _directory(path: str, problems: Problems) -> Iterator[_File]:
    try:
        names = [entry for entry in sorted(Path(path).iterdir()) if _is_manifest(entry)]
    except OSError as error:
        problems.add(Origin(path), "", f"cannot be read: {error.strerror or error}")
        return
    if not names:
        problems.add(Origin(path), "", "this directory holds no *.yaml, *.yml or *.json manifest")
    for name in names:
        yield from _one_file(str(name), problems)


def _is_manifest(path: Path) -> bool:
    name = path.name.lower()
    is_compose = name.removesuffix(path.suffix.lower()).endswith("compose")
    return (
        path.is_file()
        and path.suffix.lower() in _SUFFIXES
        and not name.startswith(".")
        and not is_compose
    )


def _one_file(path: str, problems: Problems) -> Iterator[_File]:
    try:
        yield _File(path, _read(Path(path)), Path(path).parent)
    except ValueError as error:
        problems.add(Origin(path), "", str(error))


def _read(path: Path) -> str:
    """The text of a file; ValueError with words for people where there is none to have."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)  # some files have no end
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(raw) > _MAX_BYTES:
        raise ValueError(_too_large(str(path)))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start})") from error


# ---------------------------------------------------------------------- documents


def _manifests(file: _File, problems: Problems) -> Iterator[LoadedManifest]:
    before = len(problems.found)
    count = 0
    for origin, tree in _trees(file, problems):
        count += 1
        manifest = _manifest(Item(tree, origin, "", problems), file.folder)
        if manifest is not None:
            yield manifest
    if not count and len(problems.found) == before:
        problems.add(Origin(file.name), "", "holds no document")


def _trees(file: _File, problems: Problems) -> Iterator[tuple[Origin, Node]]:
    if not (file.name.endswith(".json") or file.text.lstrip().startswith("{")):
        return yaml_trees(file.name, file.text, problems)
    found = Problems()
    try:
        trees = list(json_trees(file.name, file.text, found))
    except json.JSONDecodeError as error:
        # A YAML document may begin with a brace, too.
        if not file.name.endswith(".json"):
            return yaml_trees(file.name, file.text, problems)
        problems.add(Origin(file.name), "", f"not valid JSON: {error.msg}", error.lineno)
        return iter(())
    problems.found.extend(found)
    return iter(trees)


def _manifest(item: Item, folder: Path) -> LoadedManifest | None:
    if looks_like_request(item.node):
        return LoadedManifest(item.origin, read_request(item))
    document = read_workload(item)
    if document is None:
        return None
    text = _compose_text(document, item, folder)
    return LoadedManifest(item.origin, to_request(document, text))


def _compose_text(document: WorkloadDocument, item: Item, folder: Path) -> str:
    """The Compose file's text, from the manifest or the file beside it, checked for sense."""
    file = document.compose.file
    text, where = document.compose.text, item.below(item.node, "spec.compose")
    if file is not None:
        where = file
        name = file.text()
        try:
            text = _read(folder / name) if name else ""
        except ValueError as error:
            file.refuse(str(error))
            return ""
        if not text.strip():
            file.refuse(f"{name or 'it'} is empty")
    if text.strip():
        _check_compose(text, where)
    return text


def _check_compose(text: str, where: Item) -> None:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in its line {mark.line + 1}" if mark else ""
        where.refuse(f"the Compose text is not valid YAML{line}: {getattr(error, 'problem', '')}")
        return
    keys = {key.value for key, _ in root.value} if isinstance(root, yaml.MappingNode) else set()
    if "services" not in keys:
        where.refuse("the Compose text has no services")


def _refuse_doubles(loaded: Sequence[LoadedManifest], problems: Problems) -> None:
    first: dict[str, Origin] = {}
    for manifest in loaded:
        name = manifest.workload_id
        origin = first.setdefault(name, manifest.origin)
        if name and origin is not manifest.origin:
            problems.add(manifest.origin, "metadata.name", f"{name!r} is also the name in {origin}")
