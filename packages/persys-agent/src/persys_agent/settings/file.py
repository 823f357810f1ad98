"""The settings file: where it is looked for, and its keys as texts.

Decided here: the first file of the search counts; one that was named has to be there; a scalar is
taken as it is written, a list becomes a comma list and a mapping ``k=v`` pairs; the same key twice
is an error, since one of them would be ignored silently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from attrs import frozen

from persys_agent.settings.places import CONFIG_NAME, Places

__all__ = ["FileError", "FileKey", "find_file", "read_file"]

_NOTHING = ("", "~", "null", "Null", "NULL")


class FileError(Exception):
    """The file cannot be used; the text names it and what to do."""


@frozen
class FileKey:
    """One key's value as text, and where it stands (``path:line``)."""

    value: str
    where: str


def find_file(named: str, places: Places) -> Path | None:
    """The file to read: ``named`` if that is set, else the first that the search finds."""
    if named:
        return Path(named).expanduser()
    found = (folder / CONFIG_NAME for folder in places.config_folders)
    # A folder that this user may not look into is another's: os.path says no, pathlib raises.
    return next((path for path in found if os.path.isfile(path)), None)


def read_file(path: Path) -> Mapping[str, FileKey]:
    """The keys of the file. Raises ``FileError``."""
    root = _parsed(path)
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise FileError(f"{path}: is no mapping of keys to values; see docs/agent.md")
    keys: dict[str, FileKey] = {}
    for name, value, line in _pairs(root, str(path)):
        where = f"{path}:{line}"
        if name in keys:
            raise FileError(f"{where}: {name} is set twice, first at {keys[name].where}")
        keys[name] = FileKey(value, where)
    return keys


def _parsed(path: Path) -> yaml.Node | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise FileError(
            f"{path}: {reason}; name another file with PERSYS_CONFIG_FILE or --config, or unset it"
        ) from error
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FileError(f"{path}:{line}: is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise FileError(f"{path}: is no YAML") from error
    return root


def _pairs(node: yaml.MappingNode, name: str) -> Iterator[tuple[str, str, int]]:
    for key, value in node.value:
        line = key.start_mark.line + 1
        yield _scalar(key, f"{name}:{line}"), _text(value, f"{name}:{line}"), line


def _scalar(node: yaml.Node, where: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise FileError(f"{where}: is nested deeper than any setting")
    written = str(node.value).strip()
    return "" if node.style is None and written in _NOTHING else written


def _text(node: yaml.Node, where: str) -> str:
    match node:
        case yaml.SequenceNode():
            return ",".join(_scalar(each, where) for each in node.value)
        case yaml.MappingNode():
            return ",".join(f"{key}={value}" for key, value, _ in _pairs(node, where))
        case _:
            return _scalar(node, where)
