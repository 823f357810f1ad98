"""Reads the settings from an environment, and reports everything that is wrong with it at once.

Decided here: blanks around a value do not count, an empty value is the default, and a fallback
variable counts where the first one is not set. Nothing here reads ``os.environ`` by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from persys_agent.settings import settings_table
from persys_core.settings.nearest import nearest
from persys_server.settings.checks import conflicts
from persys_server.settings.table import Settings, Variable, variables

__all__ = ["SettingsError", "load_settings", "not_acted_on", "unknown"]

_SHOWN_LENGTH = 80
_CREDENTIALS = re.compile(r":[^/@]*@")
_OURS = ("SCHEDULER_", "PERSYS_", "REDIS_", "METER_REDIS_")
_GONE = {"PERSYS_TLS_ENABLED": "no release reads it; TLS is on unless --insecure is given"}
# What persysctl reads may well be set on the same machine.
_OF_OTHERS = frozenset(
    f"PERSYS_{name}"
    for name in ("SERVER", "INSECURE", "CA_FILE", "CERT_FILE", "KEY_FILE", "SERVER_NAME")
)


class SettingsError(Exception):
    """The environment cannot be used; ``problems`` has one line per wrong variable."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load_settings(environment: Mapping[str, str]) -> Settings:
    """The settings that ``environment`` holds; raises ``SettingsError`` with every problem."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field, variable in variables().items():
        name, given = _given(environment, variable)
        try:
            values[field] = variable.parse(given)
        except ValueError as error:
            problems.append(_problem(name, given, variable, str(error)))
    if problems:
        raise SettingsError(problems)
    settings = Settings(**values)
    problems.extend(conflicts(settings))
    if problems:
        raise SettingsError(problems)
    return settings


def not_acted_on(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that are set although this release reads but does not use them."""
    return tuple(
        name
        for variable in variables().values()
        if variable.later
        for name in variable.names
        if environment.get(name, "").strip() not in ("", variable.default)
    )


def unknown(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that look like ours and that nobody reads, each with what to do about it."""
    known = [name for variable in variables().values() for name in variable.names]
    for name in sorted(environment):
        if name in _GONE:
            yield name, _GONE[name]
        elif name.startswith(_OURS) and name not in (*known, *_OF_OTHERS):
            yield name, _advice(name, known)


def _advice(name: str, known: Collection[str]) -> str:
    near = nearest(name, known, _OURS)
    if near:
        return f"did you mean {near}?"
    of_agents = {each for setting in settings_table().values() for each in setting.variables}
    return "persys-agent reads it, and this server does not" if name in of_agents else "unset it"


def _given(environment: Mapping[str, str], variable: Variable) -> tuple[str, str]:
    for name in variable.names:
        given = environment.get(name, "").strip()
        if given:
            return name, given
    return variable.name, variable.default


def _problem(name: str, given: str, variable: Variable, accepted: str) -> str:
    hidden = variable.secret or _CREDENTIALS.search(given)
    shown = "the given value (hidden)" if hidden else repr(given[:_SHOWN_LENGTH])
    return f"{name}: {shown} is not valid; accepted is {accepted}"
