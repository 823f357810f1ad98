"""What is looked at on the disk: where state is kept, and the TLS files."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

from persys_agent.doctor.findings import Case, Finding, Verdict
from persys_agent.settings.certificates import CertificateError, TlsPaths, read_material, tls_paths
from persys_agent.settings.table import NodeSettings

__all__ = ["look_at_state", "look_at_tls"]

_SOON = timedelta(days=14)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


async def look_at_state(case: Case) -> AsyncIterator[Finding]:
    """The state's folder can be written, and the database is nobody else's to read."""
    path = Path(case.settings.state_store_path)
    there = next(place for place in (path.parent, *path.parent.parents) if place.exists())
    if not there.is_dir():
        yield Finding(
            "state", Verdict.FAIL, f"{there} is not a folder", "set agent_data_dir to one"
        )
    elif not os.access(there, os.W_OK | os.X_OK):
        yield Finding(
            "state", Verdict.FAIL, f"{there} may not be written by this user",
            "run as its owner, or set agent_data_dir to a folder of your own",
        )  # fmt: skip
    else:
        will = "is writable" if there == path.parent else f"will be created in {there}"
        yield Finding("state", Verdict.OK, f"{path.parent} {will}")
        for finding in _database(path):
            yield finding


async def look_at_tls(case: Case) -> AsyncIterator[Finding]:
    """The files can be used, for how long, and the key is nobody else's to read."""
    settings = case.settings
    calls_with_tls = not (settings.scheduler_insecure or settings.standalone)
    for finding in _without_tls(settings):
        yield finding
    if settings.tls_enabled or calls_with_tls:
        for finding in _files(tls_paths(settings), case):
            yield finding


def _without_tls(settings: NodeSettings) -> Iterator[Finding]:
    advice = "unless this is a trial on one machine"
    if not settings.tls_enabled:
        yield Finding(
            "tls", Verdict.WARN, "tls_enabled is false: anybody who reaches the agent controls it",
            f"set it to true, {advice}",
        )  # fmt: skip
    if settings.scheduler_insecure and not settings.standalone:
        yield Finding(
            "tls", Verdict.WARN, "scheduler_insecure is true: the scheduler is not checked",
            f"set it to false, {advice}",
        )  # fmt: skip


def _files(paths: TlsPaths, case: Case) -> Iterator[Finding]:
    try:
        material = read_material(paths)
    except CertificateError as error:
        found, _, advice = str(error).partition("; ")
        yield Finding("tls", Verdict.FAIL, found, advice)
        return
    yield _validity(paths.cert, material.ends_at - case.now)
    yield from _too_open(Path(paths.key), "tls")


def _database(path: Path) -> Iterator[Finding]:
    if not path.exists():
        return
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "state", Verdict.FAIL, f"{path} may not be read and written by this user",
            "change its owner or its mode",
        )  # fmt: skip
        return
    yield from _too_open(path, "state")


def _too_open(path: Path, check: str) -> Iterator[Finding]:
    if stat.S_IMODE(path.stat().st_mode) & _OTHERS:
        yield Finding(
            check, Verdict.WARN, f"{path} holds secrets, and others may read or write it",
            f"chmod 600 {path}",
        )  # fmt: skip


def _validity(cert: str, left: timedelta) -> Finding:
    if left <= timedelta(0):
        return Finding("tls", Verdict.FAIL, f"{cert} ended {-left.days} days ago", "renew it")
    found = f"{cert} is valid for {left.days} days"
    if left < _SOON:
        advice = "renew it; the agent takes the new files without a restart"
        return Finding("tls", Verdict.WARN, found, advice)
    return Finding("tls", Verdict.OK, found)
