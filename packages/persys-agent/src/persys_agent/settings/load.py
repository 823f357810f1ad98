"""Reads the settings from flags, environment and file, and reports all that is wrong at once.

Decided here: a flag wins over the environment, that over the file, that over the default; blanks
around a value do not count, and an empty value is not set. Nothing here reads ``os.environ`` by
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from persys_agent.settings.checks import conflicts
from persys_agent.settings.file import FileError, FileKey, find_file, read_file
from persys_agent.settings.places import Places, here
from persys_agent.settings.table import NodeSettings, Setting, settings_table
from persys_core.model.errors import PersysError
from persys_core.settings.nearest import nearest

__all__ = ["SettingsError", "load_settings", "not_acted_on", "unknown_variables"]

_SHOWN_LENGTH = 80
_CREDENTIALS = re.compile(r":[^/@]*@")
_CONFIG_VARIABLE = "PERSYS_CONFIG_FILE"
_DATA_KEY = "agent_data_dir"
# What persysctl and the scheduler read may well be set on the same machine.
_OF_OTHERS = frozenset(
    f"PERSYS_{name}"
    for name in (
        *("SERVER", "INSECURE", "CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER_NAME"),
        *("STORE", "DATA_DIR", "EXTERNAL_IP", "AUTHZ", "REQUIRE", "VAULT_APPROLE_MOUNT"),
        "AGENT_SERVER_NAME",
    )
)
_PREFIX = "PERSYS_"
_PREFIXES_OF_OTHERS = ("PERSYS_RGW_", "PERSYS_S3_")


class SettingsError(PersysError):
    """The settings cannot be used; ``problems`` has one line per wrong setting."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@frozen
class _Given:
    """A setting's text, and where it comes from."""

    text: str
    where: str


def load_settings(
    environment: Mapping[str, str],
    *,
    flags: Mapping[str, str] | None = None,
    config: str = "",
    places: Places | None = None,
) -> NodeSettings:
    """The settings; raises ``SettingsError`` with every problem.

    ``flags`` holds texts by the settings' keys. ``config`` is the path given with ``--config``, and
    wins over ``PERSYS_CONFIG_FILE``; either replaces the search for the file.
    """
    places = places or here(environment)
    path = find_file(config or environment.get(_CONFIG_VARIABLE, "").strip(), places)
    try:
        keys = read_file(path) if path else {}
    except FileError as error:
        raise SettingsError([str(error)]) from error
    problems = list(_unknown_keys(keys))
    given = {
        key: _given(setting, flags or {}, environment, keys)
        for key, setting in settings_table().items()
    }
    values, wrong = _parsed(given, places)
    problems += wrong
    if problems:
        raise SettingsError(problems)
    settings = NodeSettings(config_file=str(path or ""), **values)
    problems += conflicts(settings)
    if problems:
        raise SettingsError(problems)
    return settings


def not_acted_on(settings: NodeSettings) -> tuple[str, ...]:
    """The keys whose value differs from the default although this release does not use them."""
    return tuple(
        key
        for key, setting in settings_table().items()
        if setting.later and getattr(settings, key) != setting.parse(setting.default)
    )


def unknown_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that look like ours and that nobody reads, each with what to do about it."""
    known = [name for setting in settings_table().values() for name in setting.variables]
    accepted = {*known, *_OF_OTHERS, _CONFIG_VARIABLE}
    for name in sorted(environment):
        is_ours = name.startswith(_PREFIX) and not name.startswith(_PREFIXES_OF_OTHERS)
        if is_ours and name not in accepted:
            yield name, _suggestion(name, known) or "unset it"


def _given(
    setting: Setting,
    flags: Mapping[str, str],
    environment: Mapping[str, str],
    keys: Mapping[str, FileKey],
) -> _Given | None:
    if flag := flags.get(setting.key, "").strip():
        return _Given(flag, f"--{setting.key.replace('_', '-')}")
    for name in setting.variables:
        if variable := environment.get(name, "").strip():
            return _Given(variable, name)
    found = keys.get(setting.key)
    return _Given(found.value, f"{found.where}: {setting.key}") if found and found.value else None


def _parsed(given: Mapping[str, _Given | None], places: Places) -> tuple[dict[str, Any], list[str]]:
    data = given[_DATA_KEY]
    stand_ins = {
        "{data}": data.text if data else str(places.data),
        "{libvirt}": places.libvirt_uri,
    }
    values: dict[str, Any] = {}
    problems: list[str] = []
    for key, setting in settings_table().items():
        found = given[key] or _Given(_filled(setting.default, stand_ins), setting.variables[0])
        try:
            values[key] = setting.parse(found.text)
        except ValueError as error:
            problems.append(_problem(found, setting, str(error)))
    return values, problems


def _filled(default: str, stand_ins: Mapping[str, str]) -> str:
    for name, value in stand_ins.items():
        default = default.replace(name, value)
    return default


def _problem(given: _Given, setting: Setting, accepted: str) -> str:
    hidden = setting.secret or _CREDENTIALS.search(given.text)
    shown = "the given value (hidden)" if hidden else repr(given.text[:_SHOWN_LENGTH])
    return f"{given.where}: {shown} is not valid; accepted is {accepted}"


def _unknown_keys(keys: Mapping[str, FileKey]) -> Iterator[str]:
    known = list(settings_table())
    for key, found in keys.items():
        if key not in known:
            advice = _suggestion(key, known) or "see docs/agent.md for all keys"
            yield f"{found.where}: {key} is no setting; {advice}"


def _suggestion(name: str, known: list[str]) -> str:
    near = nearest(name, known, (_PREFIX,))
    return f"did you mean {near}?" if near else ""
