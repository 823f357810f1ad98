"""What is looked at of the agent's state, and of the folders that it keeps its things in.

Decided here: the state is judged by what the agent itself would do with it, on a copy, since
opening it writes. While an agent has it, it works, and is left alone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from persys_agent.doctor.findings import Case, Finding, Verdict
from persys_agent.doctor.secrecy import open_to_others
from persys_agent.settings.table import NodeSettings
from persys_agent.state.file import StateFile
from persys_agent.state.lock import StateError, is_held

__all__ = ["look_at_folders", "look_at_state"]

_WITHOUT = (
    "move it away, or bring a good copy back: without it the agent loses what it was asked for and"
    " nothing that runs"
)
_PARTS = ("", "-wal")
"""The file, and what SQLite has written and not yet put in its place."""


async def look_at_state(case: Case) -> AsyncIterator[Finding]:
    """The state's folder can be written, and the database is sound and nobody else's to read."""
    path = Path(case.settings.state_store_path)
    problem, there = _problem_of(path.parent)
    if problem:
        advice = f"make it one that this user may write, or set {_setting_of(case.settings)}"
        yield Finding("state", Verdict.FAIL, problem, advice)
        return
    will = "is writable" if there == path.parent else f"will be created in {there}"
    yield Finding("state", Verdict.OK, f"{path.parent} {will}")
    for finding in await asyncio.to_thread(lambda: list(_database(path))):
        yield finding


async def look_at_folders(case: Case) -> AsyncIterator[Finding]:
    """Those that runtimes in use keep their things in; what is wrong with several is told once."""
    wrong: dict[str, list[str]] = {}
    for key in _folders(case.settings):
        problem, _ = _problem_of(Path(getattr(case.settings, key)))
        if problem:
            wrong.setdefault(problem, []).append(key)
    for problem, keys in wrong.items():
        yield Finding(
            "folders", Verdict.FAIL, f"{', '.join(keys)}: {problem}",
            "make it one that this user may write, or set agent_data_dir to another",
        )  # fmt: skip
    if not wrong:
        yield Finding("folders", Verdict.OK, f"{case.settings.agent_data_dir} can be used")


def _folders(settings: NodeSettings) -> Iterator[str]:
    has_machines = settings.vm_enabled or settings.firecracker_enabled
    for key, is_used in (
        ("agent_data_dir", True),
        ("compose_root", settings.compose_enabled),
        ("vm_images_root", has_machines),
        ("firecracker_root", settings.firecracker_enabled),
    ):
        if is_used:
            yield key


def _setting_of(settings: NodeSettings) -> str:
    is_inside = Path(settings.agent_data_dir) in Path(settings.state_store_path).parents
    return "agent_data_dir to a folder of your own" if is_inside else "state_store_path to another"


def _problem_of(folder: Path) -> tuple[str, Path]:
    """What is wrong with a folder, or with the place where it will be made; and that place."""
    places = (folder, *folder.parents)
    there = next(place for place in places if os.path.lexists(place))
    if not there.is_dir():
        return f"{there} is not a folder", there
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} may not be written by this user", there
    return "", there


def _database(path: Path) -> Iterator[Finding]:
    if not os.path.lexists(path):
        return
    if not path.is_file():
        advice = "move it away, or set state_store_path to another"
        yield Finding("state", Verdict.FAIL, f"{path} is not a file", advice)
        return
    if not os.access(path, os.R_OK | os.W_OK):
        yield Finding(
            "state", Verdict.FAIL, f"{path} may not be read and written by this user",
            "change its owner or its mode",
        )  # fmt: skip
        return
    if not is_held(path):
        yield from _soundness(path)
    yield from open_to_others(path, "state")


def _soundness(path: Path) -> Iterator[Finding]:
    """What is found where an agent would begin with this state; looked at in a copy."""
    with tempfile.TemporaryDirectory(prefix="persys-doctor-") as folder:
        copy = Path(folder) / path.name
        try:
            for part in _PARTS:
                if Path(f"{path}{part}").exists():
                    shutil.copyfile(f"{path}{part}", f"{copy}{part}")
        except OSError as error:
            said = f"{path} cannot be copied to {folder} for a look: {error.strerror}"
            advice = "make the copy possible (TMPDIR names another folder) and look again"
            yield Finding("state", Verdict.WARN, said, advice)
            return
        problem = _unsound(copy)
        if problem:
            yield Finding("state", Verdict.FAIL, problem.replace(str(copy), str(path)), _WITHOUT)


def _unsound(copy: Path) -> str:
    """Why an agent could not begin with this state; empty where it could."""
    try:
        file = StateFile(copy)
        try:
            file.load()
        finally:
            file.close()
    except (StateError, OSError) as error:
        return str(error).partition("; it is left")[0]
    return ""
