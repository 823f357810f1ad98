"""What Compose's complaints mean, in the agents' codes.

Compose gives one exit code for everything, so its sentences have to do: those of the Engine and of
the registry that it passes on, and its own about the file.
"""

from __future__ import annotations

import re

from persys_agent.runtimes.docker.engine import EngineError
from persys_agent.runtimes.docker.failures import create_failure, pull_failure, taken_port
from persys_agent.runtimes.port import FailureCode

__all__ = ["compose_failure", "reason"]

_LINES = 6
_CHARACTERS = 1000
_OPEN_ENDS = (":", ";", ",")
"""Ends of lines that the next one goes on from."""
_NAME_TAKEN = re.compile(r"Conflict\. The container name \S+ is already in use")
_NO_SOURCE = re.compile(r"bind source path does not exist|bind mount source path does not exist")
_PULL = re.compile(
    r"Get \"?https?://\S+/v2/|\bmanifest unknown\b|\bpull access denied\b|\bNo such image\b"
    r"|\bimage \S+ not found\b|\bunauthorized: |error pulling image"
    r"|Error response from daemon: Head"
)
_NO_IMAGE = re.compile(r"\bNo such image\b|\bimage \S+ not found\b")
_FILE = re.compile(
    r"The Compose file .* is invalid|^validating |yaml: |Unsupported config option"
    r"|refers to undefined|undefined (?:volume|network|service)|invalid (?:compose|interpolation)"
    r"|Invalid interpolation format|neither an image nor a build context"
    r"|Minimum memory limit allowed is",
    re.MULTILINE,
)
_PROGRESS = re.compile(r"^(?:Creating|Recreating|Starting|Stopping|Removing|Pulling)\b.*$\n?", re.M)


def compose_failure(output: str) -> FailureCode:
    """Why Compose failed."""
    if taken_port(output):
        return FailureCode.PORT_CONFLICT
    if _NAME_TAKEN.search(output):
        return FailureCode.NAME_CONFLICT
    if _NO_SOURCE.search(output):
        return FailureCode.VOLUME_FAILED
    if _NO_IMAGE.search(output):
        return FailureCode.IMAGE_NOT_FOUND
    if _PULL.search(output):
        return pull_failure(EngineError(0, output))
    if _FILE.search(output):
        return FailureCode.INVALID_SPEC
    return create_failure(EngineError(0, output))


def reason(stderr: str, stdout: str = "") -> str:
    """The last lines that say more than what was being done."""
    told = _PROGRESS.sub("", stderr).strip() or stderr.strip() or stdout.strip()
    lines = list(dict.fromkeys(filter(None, map(str.strip, told.splitlines()))))
    joined = ""
    for line in lines[-_LINES:]:
        between = " " if joined.endswith(_OPEN_ENDS) else "; "
        joined = f"{joined}{between}{line}" if joined else line
    return joined[-_CHARACTERS:]
