"""What is looked at of the TLS files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

from persys_agent.doctor.findings import Case, Finding, Verdict
from persys_agent.doctor.secrecy import open_to_others
from persys_agent.settings.certificates import CertificateError, TlsPaths, read_material, tls_paths
from persys_agent.settings.table import NodeSettings

__all__ = ["look_at_tls"]

_SOON = timedelta(days=14)


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
    yield from open_to_others(Path(paths.key), "tls")


def _validity(cert: str, left: timedelta) -> Finding:
    if left <= timedelta(0):
        return Finding("tls", Verdict.FAIL, f"{cert} ended {-left.days} days ago", "renew it")
    found = f"{cert} is valid for {left.days} days"
    if left < _SOON:
        advice = "renew it; the agent takes the new files without a restart"
        return Finding("tls", Verdict.WARN, found, advice)
    return Finding("tls", Verdict.OK, found)
