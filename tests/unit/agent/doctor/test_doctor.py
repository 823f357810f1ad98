"""The agent's doctor: what it looks at, what it says, and that it changes nothing."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc.aio
import pytest
import trustme
from attrs import evolve

from persys_agent.commands import HostCommands
from persys_agent.doctor.clock import clock_offset, compared, look_at_clock
from persys_agent.doctor.command import doctor, examine
from persys_agent.doctor.files import look_at_tls
from persys_agent.doctor.findings import Case, Finding, Probe, Verdict
from persys_agent.doctor.means import look_at_reserve, look_at_runtimes, look_at_storage
from persys_agent.doctor.network import (
    look_at_identity,
    look_at_ports,
    look_at_scheduler,
)
from persys_agent.doctor.report import exit_code, print_json, print_report
from persys_agent.doctor.state import look_at_folders, look_at_state
from persys_agent.metrics.families import AgentMetrics
from persys_agent.metrics.server import Health, MetricsServer
from persys_agent.runtimes.port import Capability
from persys_agent.settings import NodeSettings, load_settings
from persys_agent.settings.certificates import TlsFilesOnDisk, TlsPaths, server_credentials
from persys_agent.state.file import StateFile
from persys_agent.state.lock import is_held
from persys_agent.storage.drivers import storage_drivers
from persys_agent.testing.commands import ScriptedCommands
from persys_core.model.states import WorkloadType

NOW = datetime(2026, 11, 1, tzinfo=UTC)
RUNTIMES = {kind.value for kind in WorkloadType}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def says(available: bool, detail: str) -> Probe:
    async def probe() -> Capability:
        return Capability(available, detail)

    return probe


def all_well(_: NodeSettings) -> Mapping[WorkloadType, Probe]:
    return {kind: says(True, f"{kind} 1.0") for kind in WorkloadType}


@pytest.fixture
def healthy(tmp_path: Path) -> dict[str, str]:
    """An environment that nothing is wrong with, for a trial on one machine."""
    return {
        "HOME": str(tmp_path),
        "PERSYS_AGENT_DATA_DIR": str(tmp_path / "data"),
        "PERSYS_GRPC_ADDR": "127.0.0.1",
        "PERSYS_GRPC_PORT": free_port(),
        "PERSYS_METRICS_PORT": free_port(),
        "PERSYS_TLS_ENABLED": "false",
        "PERSYS_STANDALONE": "true",
    }


def case(environment: Mapping[str, str], **more: str) -> Case:
    settings = load_settings({**environment, **more})
    drivers = storage_drivers(settings, HostCommands())
    return Case(settings, ScriptedCommands(programs=()), all_well(settings), drivers, NOW)


async def looked(look: Callable[[Case], AsyncIterator[Finding]], of: Case) -> list[Finding]:
    return [finding async for finding in look(of)]


@pytest.mark.asyncio
async def test_a_healthy_host_has_no_failure(healthy: dict[str, str], tmp_path: Path) -> None:
    """Everything is told, nothing fails, and nothing was created."""
    found = await examine(healthy, all_well, HostCommands())
    assert [each for each in found if each.verdict is Verdict.FAIL] == []
    checks = {each.check for each in found}
    assert {"settings", "node", "state", "tls", "grpc_port", "scheduler", "storage local"} <= checks
    assert checks >= RUNTIMES
    assert _names(tmp_path) == []


def _names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


@pytest.mark.asyncio
async def test_wrong_settings_are_all_told() -> None:
    """Each is a line of its own; nothing else can be looked at then."""
    wrong = {"PERSYS_GRPC_PORT": "x", "PERSYS_LOG_LEVEL": "loud", "PERSYS_GRPC_PROT": "1"}
    found = await examine(wrong, all_well, HostCommands())
    assert [each.found.split(":")[0] for each in found if each.verdict is Verdict.FAIL] == [
        *("PERSYS_GRPC_PORT", "PERSYS_LOG_LEVEL")
    ]
    assert [each.advice for each in found if each.verdict is Verdict.WARN] == [
        "did you mean PERSYS_GRPC_PORT?"
    ]


@pytest.mark.asyncio
async def test_settings_without_effect_are_told(healthy: dict[str, str]) -> None:
    """Whoever sets them is not left to wonder."""
    found = await examine({**healthy, "OTEL_SERVICE_NAME": "x"}, all_well, HostCommands())
    assert "otel_service_name is set, but this release does not act on it" in {
        each.found for each in found
    }


@pytest.mark.asyncio
async def test_a_settings_file_with_a_secret_that_others_may_read(
    healthy: dict[str, str], tmp_path: Path
) -> None:
    """A warning with the command to correct it."""
    path = tmp_path / "c.yaml"
    path.write_text("vault_token: sesame\n")
    path.chmod(0o644)
    environment = {**healthy, "PERSYS_CONFIG_FILE": str(path)}
    found = await examine(environment, all_well, HostCommands())
    assert f"chmod 640 {path}" in {each.advice for each in found}
    assert "sesame" not in str(found)


@pytest.mark.asyncio
async def test_state_that_cannot_be_kept(healthy: dict[str, str], tmp_path: Path) -> None:
    """A file in the way fails; a database that others may read is a warning."""
    (tmp_path / "file").write_text("")
    (blocked,) = await looked(
        look_at_state, case(healthy, PERSYS_AGENT_DATA_DIR=str(tmp_path / "file" / "x"))
    )
    assert (blocked.verdict, "is not a folder" in blocked.found) == (Verdict.FAIL, True)
    assert "agent_data_dir" in blocked.advice
    StateFile(tmp_path / "state.db").close()
    (tmp_path / "state.db").chmod(0o644)
    found = await looked(look_at_state, case(healthy, PERSYS_AGENT_DATA_DIR=str(tmp_path)))
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.WARN]
    assert found[1].advice.startswith("chmod 600")


async def _state_found(path: Path, healthy: dict[str, str]) -> Finding | None:
    """What is said of the state itself; None where nothing is wrong with it."""
    found = await looked(look_at_state, case(healthy, PERSYS_STATE_PATH=str(path)))
    assert found[0].verdict is Verdict.OK
    return found[1] if len(found) > 1 else None


@pytest.mark.asyncio
async def test_a_state_file_that_no_agent_can_use(healthy: dict[str, str], tmp_path: Path) -> None:
    """Damaged, a folder, a newer agent's: each fails with what is wrong, and stays as it is."""
    path = tmp_path / "state.db"
    path.mkdir()
    found = await _state_found(path, healthy)
    assert found is not None
    assert (found.verdict, found.found) == (Verdict.FAIL, f"{path} is not a file")
    path.rmdir()
    path.write_bytes(b"not a database at all" * 100)
    path.chmod(0o600)
    found = await _state_found(path, healthy)
    assert found is not None
    assert (found.verdict, f"the state {path} is no usable database" in found.found) == (
        Verdict.FAIL,
        True,
    )
    assert "move it away" in found.advice
    assert path.read_bytes() == b"not a database at all" * 100
    path.unlink()
    StateFile(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = _names(tmp_path)
    found = await _state_found(path, healthy)
    assert found is not None
    assert "newer agent" in found.found
    assert _names(tmp_path) == before


@pytest.mark.asyncio
async def test_a_full_temporary_folder_says_nothing_of_the_state(
    healthy: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told to move a sound state away because no copy of it could be made."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "state.db"
    StateFile(path).close()
    monkeypatch.setattr(shutil, "copyfile", full)
    found = await _state_found(path, healthy)
    assert found is not None
    assert (found.verdict, "cannot be copied" in found.found) == (Verdict.WARN, True)
    assert "move it away" not in found.advice


def test_the_lock_of_another_file_is_not_the_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that only begins like that of the state's lock is another file's."""
    (tmp_path / "state.db.lock").touch()
    number = os.stat(tmp_path / "state.db.lock").st_ino
    locks = tmp_path / "locks"
    monkeypatch.setattr("persys_agent.state.lock._LOCKS", locks)
    line = "1: FLOCK  ADVISORY  WRITE 77 08:01:{} 0 EOF\n"
    locks.write_text(line.format(f"{number}7"), encoding="ascii")
    assert not is_held(tmp_path / "state.db")
    locks.write_text(line.format(number), encoding="ascii")
    assert is_held(tmp_path / "state.db")


@pytest.mark.asyncio
async def test_the_state_of_an_agent_that_runs_is_left_alone(
    healthy: dict[str, str], tmp_path: Path
) -> None:
    """It works, since that agent has it; and what it writes at this moment is no damage."""
    path = tmp_path / "state.db"
    file = StateFile(path)
    try:
        path.write_bytes(b"half a page")
        assert await _state_found(path, healthy) is None
    finally:
        file.close()
    path.write_bytes(b"half a page")
    assert await _state_found(path, healthy) is not None


@pytest.mark.asyncio
async def test_folders_that_cannot_be_used(healthy: dict[str, str], tmp_path: Path) -> None:
    """Also where the state is elsewhere; one fault of several folders is one line."""
    state = {"PERSYS_STATE_PATH": str(tmp_path / "state.db")}
    (tmp_path / "file").write_text("")
    (found,) = await looked(
        look_at_folders, case(healthy, PERSYS_AGENT_DATA_DIR=str(tmp_path / "file"), **state)
    )
    assert found.verdict is Verdict.FAIL
    assert found.found == (
        "agent_data_dir, compose_root, vm_images_root, firecracker_root:"
        f" {tmp_path / 'file'} is not a folder"
    )
    (well,) = await looked(look_at_folders, case(healthy, **state))
    assert well.verdict is Verdict.OK


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("key", "unit"),
    [("CPU_MILLICORES", "millicores"), ("MEMORY_MB", "MiB"), ("DISK_GB", "GiB")],
)
async def test_a_reserve_that_leaves_nothing(healthy: dict[str, str], key: str, unit: str) -> None:
    """The scheduler would not take such a node in; the doctor says so before."""
    name = f"PERSYS_HOST_RESERVE_{key}"
    (found,) = await looked(look_at_reserve, case(healthy, **{name: "9999999"}))
    assert found.verdict is Verdict.FAIL
    assert f"host_reserve_{key.lower()} keeps 9999999 {unit} of the " in found.found
    (well,) = await looked(look_at_reserve, case(healthy))
    assert well.verdict is Verdict.OK


def issue(folder: Path, days: float) -> TlsPaths:
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1", not_after=NOW + timedelta(days=days))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    pair.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    pair.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "key.pem").chmod(0o600)
    return TlsPaths(*(str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem")))


def with_tls(environment: Mapping[str, str], paths: TlsPaths, **more: str) -> Case:
    tls = {
        "PERSYS_TLS_ENABLED": "true",
        "PERSYS_TLS_CA": paths.ca,
        "PERSYS_TLS_CERT": paths.cert,
        "PERSYS_TLS_KEY": paths.key,
    }
    return case(environment, **tls, **more)


@pytest.mark.parametrize(
    ("days", "verdict", "told"),
    [
        (100, Verdict.OK, "valid for 100 days"),
        (3, Verdict.WARN, "valid for 3 days"),
        (-2, Verdict.FAIL, "ended 2 days ago"),
    ],
)
@pytest.mark.asyncio
async def test_how_long_the_certificate_is_valid(
    healthy: dict[str, str], tmp_path: Path, days: float, verdict: Verdict, told: str
) -> None:
    """In days; soon is a warning, past a failure."""
    (found,) = await looked(look_at_tls, with_tls(healthy, issue(tmp_path, days)))
    assert found.verdict is verdict
    assert told in found.found


@pytest.mark.asyncio
async def test_tls_files_that_cannot_be_used(healthy: dict[str, str], tmp_path: Path) -> None:
    """The file is named with what to do; a key that others may read is a warning; without TLS
    that is said."""
    paths = issue(tmp_path, 100)
    (absent,) = await looked(look_at_tls, with_tls(healthy, evolve(paths, key="/absent.pem")))
    assert absent.verdict is Verdict.FAIL
    assert "/absent.pem cannot be read" in absent.found
    assert absent.advice
    os.chmod(paths.key, 0o644)
    found = await looked(look_at_tls, with_tls(healthy, paths))
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.WARN]
    plain = await looked(
        look_at_tls,
        case(healthy, PERSYS_SCHEDULER_INSECURE="true", PERSYS_STANDALONE="false"),
    )
    assert [each.verdict for each in plain] == [Verdict.WARN, Verdict.WARN]


@pytest.mark.asyncio
async def test_ports_that_are_taken(healthy: dict[str, str]) -> None:
    """A stranger's is a failure that names the setting."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = str(holder.getsockname()[1])
        found = await looked(look_at_ports, case(healthy, PERSYS_GRPC_PORT=taken))
    assert [(each.check, each.verdict) for each in found] == [
        ("grpc_port", Verdict.FAIL),
        ("metrics_port", Verdict.OK),
    ]


@pytest.mark.asyncio
async def test_ports_of_an_agent_that_runs(healthy: dict[str, str]) -> None:
    """The doctor may be asked about a node that works."""

    *ports, agent = await _looked_at_running(healthy, Health(True))
    assert [each.verdict for each in (*ports, agent)] == [Verdict.OK] * 3
    assert "an agent runs here" in ports[1].found


@pytest.mark.asyncio
async def test_an_agent_that_runs_and_is_not_well(healthy: dict[str, str]) -> None:
    """Such as one whose node id another agent has: its own word is passed on."""
    *_, agent = await _looked_at_running(healthy, Health(False, "registration refused: held by x"))
    assert (agent.check, agent.verdict) == ("agent", Verdict.FAIL)
    assert agent.found.endswith("registration refused: held by x")


async def _looked_at_running(healthy: dict[str, str], health: Health) -> list[Finding]:
    async def asked() -> Health:
        return health

    server = MetricsServer(AgentMetrics(), asked)
    await server.start("127.0.0.1", 0)
    found = await looked(look_at_ports, case(healthy, PERSYS_METRICS_PORT=str(server.port)))
    await server.stop()
    return found


@pytest.mark.asyncio
async def test_a_scheduler_that_is_not_there(healthy: dict[str, str]) -> None:
    """The address and the system's reason."""
    nobody = f"127.0.0.1:{free_port()}"
    (found,) = await looked(
        look_at_scheduler,
        case(healthy, PERSYS_STANDALONE="false", PERSYS_SCHEDULER_ADDR=nobody),
    )
    assert found.verdict is Verdict.FAIL
    assert found.found.startswith(f"{nobody}: ")


@pytest.mark.asyncio
async def test_a_scheduler_that_answers(healthy: dict[str, str], tmp_path: Path) -> None:
    """It answers over TLS with our certificate, and without TLS it does not."""
    paths = issue_valid(tmp_path)
    server = grpc.aio.server()
    port = server.add_secure_port("127.0.0.1:0", server_credentials(TlsFilesOnDisk(paths)))
    await server.start()
    where = {"PERSYS_STANDALONE": "false", "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{port}"}
    (good,) = await looked(look_at_scheduler, with_tls(healthy, paths, **where))
    (bad,) = await looked(
        look_at_scheduler, with_tls(healthy, paths, **where, PERSYS_SCHEDULER_INSECURE="true")
    )
    await server.stop(None)
    assert good.verdict is Verdict.OK, good.found
    assert bad.verdict is Verdict.FAIL
    assert "tls_ca_path" in bad.advice


def issue_valid(folder: Path) -> TlsPaths:
    """Valid by the real clock, which TLS goes by."""
    return issue(folder, (datetime.now(UTC) - NOW).days + 100)


@pytest.mark.asyncio
async def test_an_endpoint_that_others_cannot_call(healthy: dict[str, str]) -> None:
    """A loopback endpoint is fine for a scheduler on this host only."""
    (near,) = await looked(look_at_identity, case(healthy))
    assert near.verdict is Verdict.OK
    (far,) = await looked(look_at_identity, case(healthy, PERSYS_SCHEDULER_ADDR="192.0.2.1:8085"))
    assert far.verdict is Verdict.WARN
    assert "agent_grpc_endpoint" in far.advice


@pytest.mark.parametrize(
    ("seconds", "verdict", "told"),
    [(1, Verdict.OK, "1 s ahead"), (-90, Verdict.WARN, "90 s behind")],
)
def test_the_clock_compared(seconds: float, verdict: Verdict, told: str) -> None:
    """A second is what the answer's date is good for; much is a warning."""
    found = compared(timedelta(seconds=seconds))
    assert found.verdict is verdict
    assert told in found.found


@pytest.mark.asyncio
async def test_the_clock_of_a_server(healthy: dict[str, str]) -> None:
    """Every answer is dated; who does not answer has no clock."""

    async def well() -> Health:
        return Health(True)

    server = MetricsServer(AgentMetrics(), well)
    await server.start("127.0.0.1", 0)
    offset = await clock_offset(f"http://127.0.0.1:{server.port}/health")
    await server.stop()
    assert offset is not None
    assert abs(offset) < timedelta(seconds=3)
    assert await clock_offset(f"http://127.0.0.1:{free_port()}/health") is None


@pytest.mark.parametrize(
    ("answer", "count"), [("yes", 0), ("no", 1), ("", 0)], ids=["kept", "not kept", "not said"]
)
@pytest.mark.asyncio
async def test_a_clock_that_nobody_keeps(healthy: dict[str, str], answer: str, count: int) -> None:
    """What systemd says of it, where it says something."""
    commands = ScriptedCommands().on("timedatectl", stdout=answer)
    found = await looked(look_at_clock, evolve(case(healthy), commands=commands))
    assert [each.verdict for each in found] == [Verdict.WARN] * count


async def broken() -> Capability:
    raise RuntimeError("sesame")


@pytest.mark.asyncio
async def test_runtimes_say_what_they_are(healthy: dict[str, str]) -> None:
    """One that cannot be used is a warning with its own advice, one that is off is no concern."""
    probes = {
        WorkloadType.CONTAINER: says(True, "Docker 27.1"),
        WorkloadType.COMPOSE: says(False, "docker compose is absent; install docker-compose"),
        WorkloadType.MICROVM: broken,
    }
    given = evolve(case(healthy, PERSYS_VM_ENABLED="false"), runtimes=probes)
    found = await looked(look_at_runtimes, given)
    assert [each.verdict for each in found] == [
        *(Verdict.OK, Verdict.WARN, Verdict.OK),
        Verdict.WARN,
    ]
    assert found[1].advice == "install docker-compose"
    assert "vm_enabled" in found[2].found
    assert "sesame" not in found[3].found


@pytest.mark.asyncio
async def test_a_node_that_could_run_nothing(healthy: dict[str, str]) -> None:
    """No runtime at all is a failure."""
    none = {kind: says(False, "absent") for kind in WorkloadType}
    found = await looked(look_at_runtimes, evolve(case(healthy), runtimes=none))
    assert (found[-1].verdict, found[-1].check) == (Verdict.FAIL, "runtimes")


@pytest.mark.asyncio
async def test_storage_drivers_say_what_they_are(healthy: dict[str, str], tmp_path: Path) -> None:
    """One that is not set up is no concern; one that is and cannot be used is; local has to be."""
    quiet = await looked(look_at_storage, case(healthy))
    assert [each.verdict for each in quiet] == [Verdict.OK] * 3
    (tmp_path / "file").write_text("")
    wanted = case(
        healthy,
        PERSYS_STORAGE_CEPH_POOL="rbd",
        PERSYS_STORAGE_LOCAL_ROOT=str(tmp_path / "file" / "x"),
    )
    found = {each.check: each for each in await looked(look_at_storage, wanted)}
    assert found["storage local"].verdict is Verdict.FAIL
    assert found["storage ceph-rbd"].verdict is Verdict.WARN
    assert found["storage nfs"].verdict is Verdict.OK


FINDINGS = [
    Finding("a", Verdict.OK, "fine"),
    Finding("b", Verdict.WARN, "so so", "look [here]"),
]


def test_the_report() -> None:
    """A table for people, JSON for programs, and 1 only where something failed."""
    text, data = io.StringIO(), io.StringIO()
    print_report(FINDINGS, text)
    assert "look [here]" in text.getvalue()
    print_json(FINDINGS, data)
    report = json.loads(data.getvalue())
    assert report["ok"]
    assert report["findings"][1] == {
        "check": "b",
        "verdict": "warn",
        "found": "so so",
        "advice": "look [here]",
    }
    assert exit_code(FINDINGS) == 0
    assert exit_code([*FINDINGS, Finding("c", Verdict.FAIL, "bad")]) == 1


@pytest.mark.asyncio
async def test_the_command(healthy: dict[str, str]) -> None:
    """Flags and the file count as for run; the exit code tells."""
    stream = io.StringIO()
    assert await doctor(healthy, all_well, stream, as_json=True) == 0
    assert json.loads(stream.getvalue())["ok"]
    assert await doctor(healthy, all_well, io.StringIO(), flags={"grpc_port": "x"}) == 1
    assert await doctor(healthy, all_well, io.StringIO(), config="/absent.yaml") == 1
