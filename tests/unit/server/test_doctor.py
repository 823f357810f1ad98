"""The doctor: what it looks at, what it says, and that it changes nothing."""

from __future__ import annotations

import io
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persys_adapters.sqlite.lock import FileLock
from persys_server.doctor.checks import examine
from persys_server.doctor.findings import Finding, Verdict
from persys_server.doctor.report import exit_code, print_report


@pytest.fixture
def free() -> dict[str, str]:
    """Two ports that nobody has, on the loopback."""
    found = []
    for _ in range(2):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            found.append(str(probe.getsockname()[1]))
    return {"PERSYS_GRPC_ADDR": "127.0.0.1", "GRPC_PORT": found[0], "METRICS_PORT": found[1]}


@pytest.fixture
def healthy(free: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """An environment that nothing is wrong with."""
    return free | {"PERSYS_STORE": "sqlite:state.db", "PERSYS_DATA_DIR": str(tmp_path)}


def by_verdict(environment: dict[str, str], verdict: Verdict) -> list[Finding]:
    return [finding for finding in examine(environment) if finding.verdict is verdict]


def failures(environment: dict[str, str]) -> list[Finding]:
    return by_verdict(environment, Verdict.FAIL)


def test_a_healthy_environment_has_no_complaints(healthy: dict[str, str], tmp_path: Path) -> None:
    """Everything is ok, the exit code is 0, and nothing was created."""
    findings = examine(healthy)
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert exit_code(findings) == 0
    assert list(tmp_path.iterdir()) == []


def test_wrong_settings_are_all_told() -> None:
    """Each wrong variable is a line of its own, with what to do."""
    found = failures({"GRPC_PORT": "x", "LOG_LEVEL": "loud"})
    assert [finding.found.split(":")[0] for finding in found] == ["GRPC_PORT", "LOG_LEVEL"]
    assert all(finding.advice for finding in found)


def test_a_misspelt_variable_is_told_with_the_right_one(healthy: dict[str, str]) -> None:
    """SCHEDULER_ names that nobody reads are warned of; the exit code stays 0."""
    odd = {
        "SCHEDULER_RECONCILE_INTERVALL": "5s",
        "PERSYS_TLS_ENABLED": "true",
        "PERSYS_RGW_REGION": "eu",
    }
    found = by_verdict(healthy | odd, Verdict.WARN)
    assert len(found) == 3
    assert "SCHEDULER_RECONCILE_INTERVAL?" in " ".join(finding.advice for finding in found)
    assert exit_code(found) == 0


def test_a_taken_port_is_told(healthy: dict[str, str]) -> None:
    """The variable that moves it is named."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", int(healthy["GRPC_PORT"])))
        holder.listen()
        (found,) = failures(healthy)
    assert (found.check, "GRPC_PORT" in found.advice) == ("GRPC_PORT", True)


def test_a_held_database_is_told(healthy: dict[str, str], tmp_path: Path) -> None:
    """Another server runs on it: its process is named."""
    (tmp_path / "state.db").write_bytes(b"")
    lock = FileLock(tmp_path / "state.db")
    (found,) = failures(healthy)
    lock.release()
    assert f"in use by process {os.getpid()}" in found.found
    assert failures(healthy) == []


def test_a_free_database_is_ok(healthy: dict[str, str], tmp_path: Path) -> None:
    """Looking at it neither locks nor changes it."""
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute("CREATE TABLE t (x)")
    before = (tmp_path / "state.db").read_bytes()
    assert failures(healthy) == []
    assert (tmp_path / "state.db").read_bytes() == before


def test_a_file_that_is_no_database_is_told(healthy: dict[str, str], tmp_path: Path) -> None:
    """Before the server would refuse it."""
    (tmp_path / "state.db").write_bytes(b"this is not a database at all" * 100)
    (found,) = failures(healthy)
    assert "no SQLite database" in found.found


def test_a_data_dir_that_is_a_file_is_told(healthy: dict[str, str], tmp_path: Path) -> None:
    """A folder that cannot be made is found before the start."""
    (tmp_path / "file").write_text("")
    found = failures(healthy | {"PERSYS_DATA_DIR": str(tmp_path / "file" / "deeper")})
    assert "data dir" in {finding.check for finding in found}


def test_what_is_known_of_the_cluster_has_to_be_readable(
    healthy: dict[str, str], tmp_path: Path
) -> None:
    """`run` would not start over it."""
    (tmp_path / "known-state.json").write_text("{not json")
    (found,) = failures(healthy)
    assert found.check == "known cluster"
    assert "known-state.json" in found.found


def test_a_password_in_an_endpoint_is_refused_and_not_shown(healthy: dict[str, str]) -> None:
    """There are variables for it, whose values are masked."""
    found = failures(
        healthy | {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": "http://joe:sekret@h:2379"}
    )
    assert "ETCD_USERNAME" in found[0].found
    assert "sekret" not in repr(found)


def test_a_store_without_a_future_is_told(healthy: dict[str, str]) -> None:
    """Memory forgets; it is said what to set."""
    (found,) = by_verdict(healthy | {"PERSYS_STORE": "memory"}, Verdict.WARN)
    assert "sqlite:" in found.advice


def test_the_table_is_plain_off_a_terminal() -> None:
    """Every cell is there, brackets included, without colours."""
    stream = io.StringIO()
    print_report([Finding("store", Verdict.FAIL, "[x] found", "do [this]")], stream)
    assert all(word in stream.getvalue() for word in ("fail", "store", "[x] found", "do [this]"))
    assert "\x1b" not in stream.getvalue()


def database(path: Path) -> None:
    """A database of several pages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE t (x)")
        made.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 300)
    path.chmod(0o600)


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
def test_a_damaged_database_is_told(healthy: dict[str, str], tmp_path: Path, held: bool) -> None:
    """Also while a server has it: what is damaged, and how a backup is restored."""
    path = tmp_path / "state.db"
    database(path)
    raw = bytearray(path.read_bytes())
    raw[40960:43960] = b"\xa5" * 3000
    path.write_bytes(raw)
    lock = FileLock(path) if held else None
    found = failures(healthy)
    if lock is not None:
        lock.release()
        assert "in use" in found.pop(0).found
    (damage,) = found
    assert damage.found.startswith(f"the store {path} cannot be used (")
    assert "restore a backup" in damage.advice
    assert path.read_bytes() == raw


@pytest.mark.slow
def test_a_database_that_others_may_read_is_warned_of(
    healthy: dict[str, str], tmp_path: Path
) -> None:
    """A04: secrets lie in it."""
    database(tmp_path / "state.db")
    assert by_verdict(healthy, Verdict.WARN) == []
    (tmp_path / "state.db").chmod(0o640)
    (found,) = by_verdict(healthy, Verdict.WARN)
    assert f"chmod 600 {tmp_path}/state.db" in found.advice


def test_folders_count_only_where_they_are_needed(healthy: dict[str, str], tmp_path: Path) -> None:
    """A store in memory needs none; a database elsewhere needs its own as well."""
    (tmp_path / "file").write_text("")
    bad = str(tmp_path / "file" / "x")
    assert failures(healthy | {"PERSYS_DATA_DIR": bad, "PERSYS_STORE": "memory"}) == []
    (found,) = failures(healthy | {"PERSYS_STORE": f"sqlite:{bad}/state.db"})
    assert (found.check, "PERSYS_STORE" in found.advice) == ("store dir", True)
