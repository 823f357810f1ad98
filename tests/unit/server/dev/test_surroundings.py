"""What a demonstration stands on, and what it leaves behind: nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from persys_agent.simulated.fleet import FleetOptions, SimulatedFleet
from persys_core.model.states import WorkloadType
from persys_server.dev.examples import SHIPPED, requests_in
from persys_server.dev.machines import add_machines, machines
from persys_server.dev.surroundings import (
    Folder,
    Ports,
    data_folder,
    demo_settings,
    stderr_into,
    with_any_ports,
)
from persys_server.settings import SettingsError, StoreKind

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder of the test's own."""
    return Folder(tmp_path, kept=True)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that someone listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_shipped_examples_are_those_of_the_repository() -> None:
    """A server that was installed from a wheel shows the same as a checkout."""
    ours = {path.name: path.read_text() for path in EXAMPLES.glob("*.yaml")}
    assert {path.name: path.read_text() for path in SHIPPED.glob("*.yaml")} == ours
    assert [request.workload_id for request in requests_in(None)] == [
        request.workload_id for request in requests_in(EXAMPLES)
    ]


def test_a_folder_of_its_own_ends_with_it(tmp_path: Path) -> None:
    """A named folder stays, with what is in it."""
    with data_folder("") as made:
        made.log.write_text("line")
    assert not made.kept
    assert not made.path.exists()
    with data_folder(str(tmp_path / "new" / "one")) as named:
        named.log.write_text("line")
    assert named.kept
    assert named.log.read_text() == "line"


def test_settings_are_quick_and_local(folder: Folder) -> None:
    """Heartbeats each second, a grace of at least three of them, only this machine, SQLite."""
    settings = demo_settings({}, folder, Ports())
    assert settings.heartbeat_interval.total_seconds() == 1
    assert settings.node_unavailable_grace >= settings.heartbeat_interval * 3
    assert settings.grpc_addr == "127.0.0.1"
    assert settings.store.kind is StoreKind.SQLITE
    assert settings.data_dir == str(folder.path)


def test_the_environment_wins(folder: Folder) -> None:
    """What is wrong in it is told like anywhere else."""
    settings = demo_settings({"SCHEDULER_HEARTBEAT_INTERVAL": "500ms"}, folder, Ports())
    assert settings.heartbeat_interval.total_seconds() == 0.5
    with pytest.raises(SettingsError, match="LOG_LEVEL"):
        demo_settings({"LOG_LEVEL": "loud"}, folder, Ports())


def test_a_named_port_is_never_swapped(folder: Folder, taken_port: int) -> None:
    """Whoever names a port gets that one or an error; the other one may be any."""
    named = Ports(grpc=taken_port)
    settings = demo_settings({}, folder, named)
    assert (settings.grpc_port, settings.metrics_port) == (taken_port, 0)
    by_variable = {"GRPC_PORT": str(taken_port)}
    assert demo_settings(by_variable, folder, Ports()).grpc_port == taken_port
    anywhere = with_any_ports(settings, {}, Ports())
    assert (anywhere.grpc_port, anywhere.metrics_port) == (0, 0)


def test_noise_goes_to_the_log(folder: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    """Libraries in C write to the descriptor, so it is the descriptor that is moved, and back."""
    with stderr_into(folder.log):
        os.write(2, b"noise\n")
    os.write(2, b"after\n")
    assert folder.log.read_text() == "noise\n"
    assert capfd.readouterr().err == "after\n"


def test_machines_differ() -> None:
    """The first runs everything; sizes and labels give placement something to decide."""
    four = list(machines(4))
    assert [each.node_id for each in four] == ["sim-1", "sim-2", "sim-3", "sim-4"]
    assert len({each.cpu_millicores for each in four}) > 1
    assert WorkloadType.VM in four[0].workload_types
    assert {each.labels.get("gpu") for each in four} == {"yes", None}
    assert len({each.boot_salt for each in machines(8)}) == 8


@pytest.mark.asyncio
async def test_machines_run_in_a_fleet() -> None:
    """Each gets a port of its own."""
    async with SimulatedFleet(FleetOptions(nodes=0)) as fleet:
        await add_machines(fleet, 5)
        assert len({each.endpoint for each in fleet.nodes()}) == 5
