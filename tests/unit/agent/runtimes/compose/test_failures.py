"""Compose's complaints, in the agents' codes."""

from __future__ import annotations

import pytest

from persys_agent.runtimes.compose.failures import compose_failure, reason
from persys_agent.runtimes.port import FailureCode


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("Cannot start service web: driver failed: Bind for 0.0.0.0:80 failed: port is already"
         " allocated", FailureCode.PORT_CONFLICT),
        ('Conflict. The container name "/x" is already in use by container',
         FailureCode.NAME_CONFLICT),
        ('Get "http://r:5000/v2/": dial tcp: connection refused', FailureCode.IMAGE_PULL_FAILED),
        ("manifest for r/x:1 not found: manifest unknown", FailureCode.IMAGE_NOT_FOUND),
        ("pull access denied for x, repository does not exist", FailureCode.IMAGE_PULL_AUTH_FAILED),
        ("No such image: x:1", FailureCode.IMAGE_NOT_FOUND),
        ("The Compose file './compose.yaml' is invalid because:\nUnsupported config option",
         FailureCode.INVALID_SPEC),
        ("validating /x/compose.yaml: services.a additional properties 'imag' not allowed",
         FailureCode.INVALID_SPEC),
        ("bind source path does not exist: /x", FailureCode.VOLUME_FAILED),
        ("Error response from daemon: Minimum memory limit allowed is 6MB",
         FailureCode.INVALID_SPEC),
        ("write /x: no space left on device", FailureCode.STORAGE_FULL),
        ("it exports nothing to report", FailureCode.RUNTIME_ERROR),
    ],
)  # fmt: skip
def test_codes(output: str, code: FailureCode) -> None:
    """Whole sentences decide, never single words (defect 30)."""
    assert compose_failure(output) is code


def test_the_reason_is_what_went_wrong() -> None:
    """Progress is left out, repetitions too, and a silent failure has its progress at least."""
    output = "Creating network x\nPulling web (x)...\nno such host\nno such host\n"
    assert reason(output) == "no such host"
    assert reason("Creating x ... error\n") == "Creating x ... error"
    assert reason("", "only this") == "only this"


def test_a_line_goes_on_from_the_one_before() -> None:
    """Where a line announces the next one, nothing parts them."""
    output = "The Compose file './x' is invalid because:\nservices.a is wrong\nservices.b too\n"
    told = "The Compose file './x' is invalid because: services.a is wrong; services.b too"
    assert reason(output) == told
