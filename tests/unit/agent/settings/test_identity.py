"""Who a node is: id, labels and endpoint, as agents in the field find them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from persys_agent.settings import NodeSettings, Places, load_settings
from persys_agent.settings.identity import advertised_endpoint, chosen_node_id, node_labels
from persys_core.model.ids import is_valid_id

MACHINE = "0123456789abcdef0123456789abcdef"


def settings(**environment: str) -> NodeSettings:
    nowhere = Path("/nonexistent")
    places = Places.of(is_root=True, home=nowhere, working=nowhere)
    return load_settings(environment, places=places)


@pytest.mark.parametrize(
    ("configured", "host", "machine", "mac", "expected"),
    [
        ("n1", "web", MACHINE, "aa:bb", "n1"),
        ("", "web", MACHINE, "aa:bb", "web-0123456789ab"),
        (
            "",
            "web",
            "",
            "aa:bb:cc:dd:ee:ff",
            f"web-{hashlib.sha256(b'aa:bb:cc:dd:ee:ff').hexdigest()[:12]}",
        ),
        ("", "web", "", "", "web"),
        ("", "", "", "", "node"),
        ("", "-we b/../x", "", "", "we-b-..-x"),
    ],
)
def test_node_id(configured: str, host: str, machine: str, mac: str, expected: str) -> None:
    """What is set, else the machine's id, else its network card, else its name."""
    found = chosen_node_id(configured, host, machine, mac)
    assert found == expected
    assert is_valid_id(found)


def test_the_longest_host_name_keeps_the_machine_apart() -> None:
    """The id stays within its limit, and what tells machines apart is not what is cut."""
    found = chosen_node_id("", "h" * 300, MACHINE, "")
    assert is_valid_id(found)
    assert found.endswith("-0123456789ab")


def test_auto_is_no_id() -> None:
    """The word auto has the agent find an id."""
    assert settings(PERSYS_NODE_ID="auto").node_id == ""
    assert settings(PERSYS_NODE_ID="n-7").node_id == "n-7"


def test_labels() -> None:
    """os and arch are added where absent; region and env overwrite."""
    given = settings(
        PERSYS_NODE_LABELS="os=plan9,region=old,rack=r1",
        PERSYS_NODE_REGION="eu",
        PERSYS_NODE_ENV="p",
    )
    assert node_labels(given, "linux", "amd64") == {
        "os": "plan9",
        "arch": "amd64",
        "rack": "r1",
        "region": "eu",
        "env": "p",
    }


@pytest.mark.parametrize(
    ("environment", "towards", "interfaces", "expected"),
    [
        ({"PERSYS_AGENT_GRPC_ENDPOINT": "lb:9"}, "10.0.0.5", (), "lb:9"),
        ({"PERSYS_GRPC_ADDR": "10.1.1.1"}, "10.0.0.5", (), "10.1.1.1:7"),
        ({"PERSYS_GRPC_ADDR": "[fd00::1]"}, "10.0.0.5", (), "[fd00::1]:7"),
        ({}, "10.0.0.5", ("10.9.9.9",), "10.0.0.5:7"),
        ({}, "127.0.0.1", ("::1", "fe80::1", "fd00::9", "10.9.9.9"), "10.9.9.9:7"),
        ({}, "", ("127.0.0.1", "fd00::9"), "[fd00::9]:7"),
        ({"PERSYS_GRPC_ADDR": "localhost"}, "", ("127.0.0.1",), "127.0.0.1:7"),
        ({"PERSYS_GRPC_ADDR": "[::]"}, "not an address", (), "127.0.0.1:7"),
    ],
)
def test_endpoint(
    environment: dict[str, str], towards: str, interfaces: tuple[str, ...], expected: str
) -> None:
    """What is set, the address listened on, the way to the scheduler, the first interface."""
    assert advertised_endpoint(settings(**environment), 7, towards, interfaces) == expected
