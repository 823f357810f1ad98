"""What ``persys-agent doctor`` does: read the settings, look at everything, tell it.

Decided here: the looks and their order. Nothing is changed by looking.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TextIO

from persys_agent.commands import Commands, HostCommands
from persys_agent.doctor.clock import look_at_clock
from persys_agent.doctor.files import look_at_tls
from persys_agent.doctor.findings import Case, Finding, Probe, Verdict
from persys_agent.doctor.means import look_at_reserve, look_at_runtimes, look_at_storage
from persys_agent.doctor.network import (
    look_at_identity,
    look_at_ports,
    look_at_scheduler,
)
from persys_agent.doctor.report import exit_code, print_json, print_report
from persys_agent.doctor.state import look_at_folders, look_at_state
from persys_agent.settings import (
    NodeSettings,
    SettingsError,
    load_settings,
    not_acted_on,
    settings_table,
    unknown_variables,
)
from persys_agent.storage.drivers import storage_drivers
from persys_core.model.states import WorkloadType

__all__ = ["ProbesFor", "doctor", "examine"]

ProbesFor = Callable[[NodeSettings], Mapping[WorkloadType, Probe]]
"""The probes of the runtimes that settings ask for."""

_LOOKS: tuple[Callable[[Case], AsyncIterator[Finding]], ...] = (
    look_at_identity,
    look_at_reserve,
    look_at_state,
    look_at_folders,
    look_at_tls,
    look_at_ports,
    look_at_scheduler,
    look_at_clock,
    look_at_runtimes,
    look_at_storage,
)


async def doctor(
    environment: Mapping[str, str],
    probes_for: ProbesFor,
    stream: TextIO,
    *,
    flags: Mapping[str, str] | None = None,
    config: str = "",
    as_json: bool = False,
) -> int:
    """Look at everything and write it; the exit code."""
    commands = HostCommands(environment)
    findings = await examine(environment, probes_for, commands, flags=flags, config=config)
    (print_json if as_json else print_report)(findings, stream)
    return exit_code(findings)


async def examine(
    environment: Mapping[str, str],
    probes_for: ProbesFor,
    commands: Commands,
    *,
    flags: Mapping[str, str] | None = None,
    config: str = "",
) -> list[Finding]:
    """Every finding. Where the settings cannot be read, only those are told."""
    try:
        settings = load_settings(environment, flags=flags, config=config)
    except SettingsError as error:
        advice = "correct it, or leave it out to get the default"
        wrong = [Finding("settings", Verdict.FAIL, each, advice) for each in error.problems]
        return [*wrong, *_unknown(environment)]
    found = [_read(settings), *_unknown(environment), *_unused(settings), *_too_open(settings)]
    case = Case(
        settings,
        commands,
        probes_for(settings),
        storage_drivers(settings, commands),
        datetime.now(UTC),
    )
    for look in _LOOKS:
        found += [finding async for finding in look(case)]
    return found


def _read(settings: NodeSettings) -> Finding:
    where = settings.config_file or "no file; the environment and the defaults"
    return Finding("settings", Verdict.OK, f"{len(settings_table())} settings read from {where}")


def _unknown(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, advice in unknown_variables(environment):
        yield Finding("settings", Verdict.WARN, f"{name} is set, but nobody reads it", advice)


def _unused(settings: NodeSettings) -> Iterator[Finding]:
    for key in not_acted_on(settings):
        yield Finding(
            "settings", Verdict.WARN, f"{key} is set, but this release does not act on it",
            "see docs/agent.md for what it waits for",
        )  # fmt: skip


def _too_open(settings: NodeSettings) -> Iterator[Finding]:
    has_secret = any(row.secret and getattr(settings, key) for key, row in settings_table().items())
    path = settings.config_file
    if has_secret and path and os.stat(path).st_mode & (stat.S_IRWXO | stat.S_IWGRP):
        yield Finding(
            "settings", Verdict.WARN, f"{path} may hold secrets, and others may read it",
            f"chmod 640 {path}",
        )  # fmt: skip
