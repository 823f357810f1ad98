"""What is looked at, and what each finding means. Nothing is changed by looking.

Decided here: the checks, their order, and the advice that each failure comes with.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from persys_adapters.known_file import KnownFile
from persys_adapters.sqlite.damage import problem_of
from persys_adapters.sqlite.private import is_open_to_others
from persys_core.model.errors import PersysError
from persys_server.doctor.etcd import examine_etcd
from persys_server.doctor.findings import Finding, Verdict
from persys_server.doctor.redis import examine_redis
from persys_server.settings import Settings, SettingsError, StoreKind, load_settings, variables
from persys_server.settings.load import not_acted_on, unknown
from persys_server.store_path import database_path, known_path

__all__ = ["examine"]

_SQLITE_HEADER = b"SQLite format 3\0"


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Every finding. Where the settings cannot be read, only those are told."""
    try:
        settings = load_settings(environment)
    except SettingsError as error:
        advice = "correct the variable, or unset it to get its default"
        return [
            Finding("settings", Verdict.FAIL, problem, advice) for problem in error.problems
        ] + list(_unknown(environment))
    found = [Finding("settings", Verdict.OK, f"{len(variables())} variables read")]
    found += [*_unknown(environment), *_unused(environment)]
    for look in _LOOKS:
        found += look(settings)
    return found


def _unknown(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name, advice in unknown(environment):
        yield Finding("settings", Verdict.WARN, f"{name} is set, but nobody reads it", advice)


def _unused(environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in not_acted_on(environment):
        yield Finding(
            "settings", Verdict.WARN, f"{name} is set, but this release does not act on it",
            "see docs/operations.md for what it waits for",
        )  # fmt: skip


def _store(settings: Settings) -> Iterator[Finding]:
    match settings.store.kind:
        case StoreKind.ETCD:
            yield from examine_etcd(settings)
        case StoreKind.MEMORY:
            yield Finding(
                "store", Verdict.WARN, "PERSYS_STORE=memory loses everything at exit",
                "set PERSYS_STORE=sqlite:state.db to keep it",
            )  # fmt: skip
        case StoreKind.SQLITE:
            yield from _sqlite(database_path(settings))


def _sqlite(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding("store", Verdict.OK, f"{path} will be created at the first start")
    elif not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "store", Verdict.FAIL, f"{path} may not be read and written by this user",
            "change its owner or its mode",
        )  # fmt: skip
    else:
        yield from _too_open(path)
        yield from _in_use(path)
        yield _content(path)


def _too_open(path: Path) -> Iterator[Finding]:
    for place in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if place.exists() and is_open_to_others(place):
            yield Finding(
                "store", Verdict.WARN, f"{place} holds secrets, and others may read or write it",
                f"chmod 600 {place} (run does so when it opens the file)",
            )  # fmt: skip


def _in_use(path: Path) -> Iterator[Finding]:
    holder = _holder(Path(f"{path}.lock"))
    if holder:
        yield Finding(
            "store", Verdict.FAIL, f"{path} is in use by process {holder}",
            "stop that server first, or give this one a file of its own",
        )  # fmt: skip


def _content(path: Path) -> Finding:
    if not path.is_file():
        return Finding(
            "store", Verdict.FAIL, f"{path} is not a file", "name a file in PERSYS_STORE"
        )
    with path.open("rb") as file:
        beginning = file.read(len(_SQLITE_HEADER))
    if beginning not in (b"", _SQLITE_HEADER):
        return Finding(
            "store", Verdict.FAIL, f"{path} is no SQLite database",
            "name another file in PERSYS_STORE, or move this one away",
        )  # fmt: skip
    problem = problem_of(path)
    if problem:
        found, _, advice = problem.rpartition("): ")
        return Finding("store", Verdict.FAIL, f"{found})", advice)
    return Finding("store", Verdict.OK, f"{path} is a whole database")


def _holder(lock: Path) -> str:
    """The process that holds ``lock``; empty where none does. The lock is given back at once."""
    try:
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(32).decode(errors="replace").strip() or "unknown"
    except OSError:
        return ""
    return ""


def _data_dir(settings: Settings) -> Iterator[Finding]:
    """A store that is lost at exit needs none."""
    if settings.store.kind is StoreKind.MEMORY:
        return
    folder = Path(settings.data_dir)
    yield _folder("data dir", folder, "PERSYS_DATA_DIR")
    if settings.store.kind is StoreKind.SQLITE and database_path(settings).parent != folder:
        yield _folder("store dir", database_path(settings).parent, "PERSYS_STORE")


def _known(settings: Settings) -> Iterator[Finding]:
    """What this replica knows of its cluster has to be readable, where there is any."""
    if settings.store.kind is StoreKind.MEMORY:
        return
    try:
        asyncio.run(KnownFile(known_path(settings)).load())
    except PersysError as error:
        found, _, advice = str(error).rpartition("; ")
        yield Finding("known cluster", Verdict.FAIL, found, advice)


def _folder(check: str, folder: Path, variable: str) -> Finding:
    there = next(place for place in (folder, *folder.resolve().parents) if place.exists())
    if not there.is_dir():
        return Finding(check, Verdict.FAIL, f"{there} is not a folder", f"set {variable} to one")
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            check, Verdict.FAIL, f"{there} may not be written by this user",
            f"change its owner, or set {variable} to a place of your own",
        )  # fmt: skip
    found = "is writable" if there == folder else f"will be created in {there}"
    return Finding(check, Verdict.OK, f"{folder} {found}")


def _ports(settings: Settings) -> Iterator[Finding]:
    for variable, port in (
        ("GRPC_PORT", settings.grpc_port),
        ("METRICS_PORT", settings.metrics_port),
    ):
        place = f"{settings.grpc_addr}:{port}"
        problem = _cannot_listen(settings.grpc_addr, port)
        if problem:
            advice = f"stop who has it, or set {variable} or PERSYS_GRPC_ADDR to something else"
            yield Finding(variable, Verdict.FAIL, f"{place}: {problem}", advice)
        else:
            yield Finding(variable, Verdict.OK, f"{place} is free")


def _cannot_listen(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return ""


_LOOKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _store,
    examine_redis,
    _data_dir,
    _known,
    _ports,
)
