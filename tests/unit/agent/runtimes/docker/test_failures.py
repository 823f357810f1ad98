"""The Engine's refusals are told by their status, and by whole sentences of its own."""

from __future__ import annotations

import pytest

from persys_agent.runtimes.docker.engine import EngineError
from persys_agent.runtimes.docker.failures import (
    create_failure,
    pull_failure,
    start_failure,
    taken_port,
)
from persys_agent.runtimes.port import FailureCode

HUB = "https://registry.example/v2/"


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (404, "manifest for a/b:1 not found: manifest unknown: m", FailureCode.IMAGE_NOT_FOUND),
        (404, "pull access denied for a/b, repository does not exist or may require 'docker"
         " login': denied: requested access", FailureCode.IMAGE_PULL_AUTH_FAILED),
        (500, "unauthorized: authentication required", FailureCode.IMAGE_PULL_AUTH_FAILED),
        (401, "whatever", FailureCode.IMAGE_PULL_AUTH_FAILED),
        (500, f'Get "{HUB}": dial tcp: lookup r on 10.0.0.1:53: no such host',
         FailureCode.IMAGE_PULL_FAILED),
        (500, f'Get "{HUB}": dial tcp 10.0.0.1:443: i/o timeout', FailureCode.IMAGE_PULL_TIMEOUT),
        (500, f'Get "{HUB}": net/http: TLS handshake timeout', FailureCode.IMAGE_PULL_TIMEOUT),
        (0, "write /var/x: no space left on device", FailureCode.STORAGE_FULL),
        (0, "unexpected EOF", FailureCode.IMAGE_PULL_FAILED),
        (400, "invalid reference format", FailureCode.INVALID_SPEC),
    ],
)  # fmt: skip
def test_pulls(status: int, message: str, code: FailureCode) -> None:
    """What is permanent is told from what may be tried again."""
    assert pull_failure(EngineError(status, message)) is code


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (404, "No such image: app:1", FailureCode.IMAGE_NOT_FOUND),
        (409, 'Conflict. The container name "/w" is already in use', FailureCode.NAME_CONFLICT),
        (400, 'invalid mount config for type "bind": bind source path does not exist: /x',
         FailureCode.VOLUME_FAILED),
        (400, "Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
         FailureCode.INSUFFICIENT_RESOURCES),
        (400, "Minimum memory limit allowed is 6MB", FailureCode.INVALID_SPEC),
        (500, "mkdir /var/lib/docker/x: no space left on device", FailureCode.STORAGE_FULL),
        (500, "anything else", FailureCode.RUNTIME_ERROR),
    ],
)  # fmt: skip
def test_creations(status: int, message: str, code: FailureCode) -> None:
    """Each status has its meaning, and the text decides within one only."""
    assert create_failure(EngineError(status, message)) is code


@pytest.mark.parametrize(
    ("message", "port"),
    [
        ("driver failed programming external connectivity on endpoint w (ab): Bind for"
         " 0.0.0.0:8080 failed: port is already allocated", 8080),
        ("driver failed programming external connectivity on endpoint w (ab): Error starting"
         " userland proxy: listen tcp4 0.0.0.0:53: bind: address already in use", 53),
        ("failed to bind host port for [::]:443: listen tcp6 [::]:443: bind: address already in"
         " use", 443),
        ("this platform has no support for exports: report it", 0),
    ],
)  # fmt: skip
def test_ports(message: str, port: int) -> None:
    """A taken port is named; words with *port* in them are no port (defect 30)."""
    assert taken_port(message) == port
    expected = FailureCode.PORT_CONFLICT if port else FailureCode.RUNTIME_ERROR
    assert start_failure(EngineError(500, message)) is expected


def test_starts() -> None:
    """A program that is not in the image will never be; a host without memory may have some."""
    missing = EngineError(400, 'exec: "nosuch": executable file not found in $PATH')
    assert start_failure(missing) is FailureCode.INVALID_SPEC
    full = EngineError(500, "fork/exec: cannot allocate memory")
    assert start_failure(full) is FailureCode.INSUFFICIENT_RESOURCES
