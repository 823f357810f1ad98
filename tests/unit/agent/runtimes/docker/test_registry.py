"""Which registry an image is of, and which credentials are its."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from persys_agent.runtimes.docker.registry import (
    credentials,
    full_reference,
    read_config,
    registry_of,
)
from persys_agent.runtimes.port import RuntimeFailedError


def login(text: str) -> dict[str, str]:
    return {"auth": base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("reference", "registry", "full"),
    [
        ("nginx", "docker.io", "docker.io/library/nginx"),
        ("team/app:1", "docker.io", "docker.io/team/app:1"),
        ("docker.io/team/app", "docker.io", "docker.io/team/app"),
        ("localhost/app", "localhost", "localhost/app"),
        ("host:5000/app:1", "host:5000", "host:5000/app:1"),
        ("r.example/a/b@sha256:00", "r.example", "r.example/a/b@sha256:00"),
    ],
)
def test_registries(reference: str, registry: str, full: str) -> None:
    """A first part is a host only where it can be nothing else."""
    assert registry_of(reference) == registry
    assert full_reference(reference) == full


def test_credentials_are_of_their_registry() -> None:
    """No registry is shown what is another's; tokens, pairs and encoded pairs are read."""
    config = {
        "auths": {
            "host:5000": login("robot:a:b"),
            "https://index.docker.io/v1/": {"username": "me", "password": "x"},
            "https://r.example": {"identitytoken": "t"},
            "bad.example": {"auth": "%%%"},
        }
    }
    found = credentials(config, "host:5000")
    assert found == {"username": "robot", "password": "a:b", "serveraddress": "host:5000"}
    hub = credentials(config, "docker.io")
    assert hub is not None
    assert hub["username"] == "me"
    token = credentials(config, "r.example")
    assert token == {"identitytoken": "t", "serveraddress": "https://r.example"}
    assert credentials(config, "other.example") is None
    assert credentials(config, "bad.example") is None


def test_a_file_that_cannot_be_read_tells_nothing_of_itself(tmp_path: Path) -> None:
    """The failure names the file, and nothing that stands in it."""
    file = tmp_path / "config.json"
    file.write_text('{"auths": hunter2')
    with pytest.raises(RuntimeFailedError) as raised:
        read_config(str(file))
    assert str(file) in str(raised.value)
    assert "hunter2" not in str(raised.value)
