"""The files in `deploy/ha` fit each other, our settings and our times; nothing is started.

What the real programs say of them stands in `tests/e2e/test_haproxy.py`.
"""

from __future__ import annotations

import configparser
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from persys_core.control.hand_over import PATIENCE
from persys_core.model.replica import HaMode
from persys_server import lifecycle
from persys_server.settings import load_settings
from persys_server.settings.load import not_acted_on, unknown
from persys_server.settings.parse import parse_duration

ROOT = Path(__file__).parents[2]
HA = ROOT / "deploy" / "ha"
COMPOSE = HA / "docker-compose.scheduler-ha.yml"
STACK = HA / "docker-stack.scheduler-ha.snippet.yml"
_DEFAULT = re.compile(r"\$\{[A-Z_]+:-([^}]*)\}")
SERVICE_KEYS = {
    "image", "build", "init", "restart", "stop_grace_period", "depends_on", "networks",
    "environment", "hostname", "volumes", "ports", "command", "healthcheck", "deploy",
}  # fmt: skip


def loaded(path: Path) -> dict[str, Any]:
    """The file as Compose reads it: anchors merged, variables at their defaults."""
    found = yaml.safe_load(_DEFAULT.sub(r"\1", path.read_text()))
    assert isinstance(found, dict)
    return found


def services(path: Path) -> dict[str, dict[str, Any]]:
    """Its services."""
    return dict(loaded(path)["services"])


def schedulers() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every scheduler of both files, by name."""
    for path in (COMPOSE, STACK):
        for name, service in services(path).items():
            if "scheduler" in name:
                yield f"{path.name}:{name}", service


SCHEDULERS = dict(schedulers())


def longest_stop() -> timedelta:
    """How long a clean stop may take."""
    return PATIENCE + timedelta(seconds=lifecycle._GRACE_SECONDS)


@pytest.mark.parametrize("path", [COMPOSE, STACK], ids=lambda path: path.name)
def test_a_compose_file_names_only_what_is_there(path: Path) -> None:
    """No key is misspelt, and every network, volume and dependency is declared in the file."""
    whole = loaded(path)
    tops = {key for key in whole if not key.startswith("x-")}
    assert tops <= {"name", "services", "networks", "volumes"}
    for name, service in services(path).items():
        assert service.keys() <= SERVICE_KEYS, name
        assert set(service["networks"]) <= set(whole["networks"]), name
        assert set(service.get("depends_on", ())) <= set(services(path)), name
        for volume in service.get("volumes", ()):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            assert source in whole["volumes"] or (HA / source).is_file(), (name, source)


def test_the_compose_file_has_all_parts() -> None:
    """Three of what must survive one loss, and one published door."""
    found = services(COMPOSE)
    assert sorted(found) == [
        "etcd-1", "etcd-2", "etcd-3", "haproxy", "redis",
        "scheduler-1", "scheduler-2", "scheduler-3",
    ]  # fmt: skip
    assert [name for name, service in found.items() if "ports" in service] == ["haproxy"]
    mounted = [volume for service in found.values() for volume in service["volumes"]]
    assert len(mounted) == len(set(mounted))


def test_the_members_of_etcd_know_each_other() -> None:
    """Each is named as the others expect it, and the schedulers are told of all."""
    members = {
        name: each["environment"] for name, each in services(COMPOSE).items() if "etcd-" in name
    }
    cluster = ",".join(f"{name}=http://{name}:2380" for name in members)
    for name, environment in members.items():
        assert environment["ETCD_NAME"] == name
        assert environment["ETCD_INITIAL_CLUSTER"] == cluster
        assert environment["ETCD_ADVERTISE_CLIENT_URLS"] == f"http://{name}:2379"
        assert environment["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == f"http://{name}:2380"
    for service in SCHEDULERS.values():
        endpoints = service["environment"]["ETCD_ENDPOINTS"].split(",")
        assert endpoints == [f"{name}:2379" for name in members]


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("mode", list(HaMode))
def test_the_settings_of_a_scheduler_are_ours(name: str, mode: HaMode) -> None:
    """Every variable is known and acted on, and the values are accepted in each mode."""
    environment: Mapping[str, str] = SCHEDULERS[name]["environment"]
    assert list(unknown(environment)) == []
    assert not_acted_on(environment) == ()
    settings = load_settings({**environment, "SCHEDULER_HA_MODE": str(mode)})
    assert settings.ha_mode is mode


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_clean_stop_is_not_cut_short(name: str) -> None:
    """Docker waits longer than a clean stop may take."""
    assert parse_duration(SCHEDULERS[name]["stop_grace_period"]) > longest_stop()


def haproxy_servers() -> dict[str, list[str]]:
    """The servers of each section of haproxy.cfg, as they are written."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in (HA / "haproxy.cfg").read_text().splitlines():
        words = line.split()
        if line[:1].isalpha():
            section = " ".join(words)
        elif words[:1] == ["server"]:
            found.setdefault(section, []).append(" ".join(words[1:]))
    return found


def test_haproxy_knows_every_scheduler() -> None:
    """Both ports of the settings, at the names of the compose file, and one check for both."""
    names = [name for name in services(COMPOSE) if name.startswith("scheduler-")]
    settings = load_settings({})
    assert haproxy_servers() == {
        "listen persys-grpc": [f"{name} {name}:{settings.grpc_port}" for name in names],
        "listen persys-http": [
            f"{name} {name}:{settings.metrics_port} track persys-grpc/{name}" for name in names
        ],
    }
    text = (HA / "haproxy.cfg").read_text()
    assert f"check port {settings.metrics_port} " in text
    assert "uri /readyz " in text
    published = services(COMPOSE)["haproxy"]["ports"]
    assert {port.split(":")[1] for port in published} == set(re.findall(r"bind :(\d+)", text))


def test_swarm_replaces_one_at_a_time() -> None:
    """The others serve meanwhile, and each slot keeps what it knows of its cluster."""
    (service,) = services(STACK).values()
    assert service["deploy"]["replicas"] == 3
    assert service["deploy"]["update_config"]["parallelism"] == 1
    assert "{{.Task.Slot}}" in loaded(STACK)["volumes"]["scheduler"]["name"]


def unit() -> configparser.SectionProxy:
    """The section of the systemd unit that says how it is run."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(HA / "persys-scheduler.service")
    return parser["Service"]


def test_the_unit_fits_the_server() -> None:
    """Its folder is that of the settings, a stop has its time, bad settings are not tried again."""
    section = unit()
    assert f"/var/lib/{section['StateDirectory']}" == load_settings({}).data_dir
    assert parse_duration(section["TimeoutStopSec"]) > longest_stop()
    assert (section["Restart"], section["RestartPreventExitStatus"]) == ("always", "2")


def test_the_image_has_what_it_copies() -> None:
    """Every package is installed, the build sees only what it copies, and the check is there."""
    text = (HA / "Dockerfile").read_text()
    copied = [line.split()[-2] for line in text.splitlines() if line.startswith("COPY")]
    assert copied == ["constraints.txt", "packages", "deploy/ha/healthcheck.py"]
    assert all((ROOT / path).exists() for path in copied)
    seen = (HA / "Dockerfile.dockerignore").read_text().splitlines()
    assert [line.removeprefix("!") for line in seen if line.startswith("!")] == copied
    wanted = tomllib.loads((ROOT / "packages/persys-server/pyproject.toml").read_text())
    python = wanted["project"]["requires-python"]
    assert python == ">=3.11"
    assert "FROM python:3.12-slim" in text


@contextmanager
def page(status: int) -> Iterator[int]:
    """A server that answers everything so; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield serving.server_port
        finally:
            serving.shutdown()
            thread.join()


def healthcheck(port: int) -> int:
    """What the check of the image says of a scheduler at this port."""
    command = [sys.executable, str(HA / "healthcheck.py")]
    env = {**os.environ, "METRICS_PORT": str(port)}
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode


def test_the_check_of_the_image_asks_for_readiness() -> None:
    """200 is healthy; 503, and nobody there, is not."""
    with page(200) as port:
        assert healthcheck(port) == 0
    assert healthcheck(port) == 1
    with page(503) as port:
        assert healthcheck(port) == 1


@pytest.mark.slow
def test_a_frozen_scheduler_is_not_healthy() -> None:
    """It accepts the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert healthcheck(listening.getsockname()[1]) == 1
