"""What the Engine's refusals mean, in the agents' codes.

Decided here: the HTTP status decides, and the text only where the Engine has one status for several
things: 500 for a taken port, a full disk and a registry that does not answer; 404 for an image that
is not there and one that may not be seen. The patterns are the Engine's own sentences, never single
words, so that "support" is no port (defect 30).
"""

from __future__ import annotations

import re

from persys_agent.runtimes.docker.engine import CONFLICT, NOT_FOUND, EngineError
from persys_agent.runtimes.port import FailureCode

__all__ = ["create_failure", "pull_failure", "start_failure", "taken_port"]

_BAD_REQUEST = 400
_UNAUTHORIZED = (401, 403)

_PORT_TAKEN = re.compile(
    r"(?:(?P<engine>\S+) failed: port is already allocated"
    r"|listen \w+ (?P<listen>\S+): bind: address already in use)"
)
_NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_NO_MEMORY = re.compile(r"cannot allocate memory", re.IGNORECASE)
_NO_SOURCE = re.compile(r"bind source path does not exist")
_TOO_MANY_CPUS = re.compile(r"as there are only \d+ CPUs available")
_AUTH = re.compile(
    r"\bunauthorized\b|\bpull access denied\b|\bdenied: |\bauthentication required\b"
    r"|\bno basic auth credentials\b|\bincorrect username or password\b|\b403 Forbidden\b"
    r"|\b401 Unauthorized\b",
    re.IGNORECASE,
)
_TIMEOUT = re.compile(
    r"\bi/o timeout\b|Client\.Timeout exceeded|\bTLS handshake timeout\b"
    r"|\bcontext deadline exceeded\b|\brequest canceled while waiting\b"
)
_UNKNOWN = re.compile(
    r"\bmanifest unknown\b|\bmanifest for \S+ not found\b|\bname unknown\b|: not found\Z"
)
_BAD_REFERENCE = re.compile(r"\binvalid reference format\b")


def pull_failure(error: EngineError) -> FailureCode:
    """Why an image could not be pulled; what is not known may be tried again."""
    if error.status in _UNAUTHORIZED or _AUTH.search(str(error)):
        return FailureCode.IMAGE_PULL_AUTH_FAILED
    if error.status == NOT_FOUND or _UNKNOWN.search(str(error)):
        return FailureCode.IMAGE_NOT_FOUND
    if error.status == _BAD_REQUEST or _BAD_REFERENCE.search(str(error)):
        return FailureCode.INVALID_SPEC
    if _TIMEOUT.search(str(error)):
        return FailureCode.IMAGE_PULL_TIMEOUT
    return _space_failure(error) or FailureCode.IMAGE_PULL_FAILED


def create_failure(error: EngineError) -> FailureCode:
    """Why a container could not be created."""
    if error.status == NOT_FOUND:
        return FailureCode.IMAGE_NOT_FOUND
    if error.status == CONFLICT:
        return FailureCode.NAME_CONFLICT
    if error.status == _BAD_REQUEST:
        return _bad_request(str(error))
    return _space_failure(error) or FailureCode.RUNTIME_ERROR


def start_failure(error: EngineError) -> FailureCode:
    """Why a container could not be started."""
    if taken_port(str(error)):
        return FailureCode.PORT_CONFLICT
    if error.status == _BAD_REQUEST:
        return _bad_request(str(error))
    return _space_failure(error) or FailureCode.RUNTIME_ERROR


def taken_port(message: str) -> int:
    """The host port that somebody else has; 0 where the message is of something else."""
    found = _PORT_TAKEN.search(message)
    if found is None:
        return 0
    port = (found["engine"] or found["listen"]).rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else 0


def _bad_request(message: str) -> FailureCode:
    if _NO_SOURCE.search(message):
        return FailureCode.VOLUME_FAILED
    if _TOO_MANY_CPUS.search(message):
        return FailureCode.INSUFFICIENT_RESOURCES
    return FailureCode.INVALID_SPEC


def _space_failure(error: EngineError) -> FailureCode | None:
    if _NO_SPACE.search(str(error)):
        return FailureCode.STORAGE_FULL
    return FailureCode.INSUFFICIENT_RESOURCES if _NO_MEMORY.search(str(error)) else None
