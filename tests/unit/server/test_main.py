"""The command line: what it refuses to start, and how it says so."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from persys_server.main import main


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests counts."""
    for name in ("PERSYS_STORE", "GRPC_PORT", "METRICS_PORT", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)


def test_run_without_insecure_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no TLS yet, and nobody gets a server without it by accident."""
    assert main(["run"]) == 2
    assert "--insecure" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--insecure", "-insecure"])
def test_both_spellings_of_insecure_are_read(
    flag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The reference has one dash; what stops this start is the folder (1), not the flag (2)."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PERSYS_STORE", "sqlite:state.db")
    monkeypatch.setenv("PERSYS_DATA_DIR", str(tmp_path / "file"))
    assert main(["run", flag]) == 1
    assert "--insecure" not in capsys.readouterr().err


def test_wrong_settings_are_told_one_per_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them, before anything is opened."""
    monkeypatch.setenv("GRPC_PORT", "x")
    monkeypatch.setenv("LOG_LEVEL", "loud")
    assert main(["run", "--insecure"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["GRPC_PORT", "LOG_LEVEL"]


def test_ports_of_the_command_line_must_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An override cannot bring about what the settings forbid."""
    monkeypatch.setenv("PERSYS_STORE", "memory")
    assert main(["run", "--insecure", "--metrics-port", "8085"]) == 2
    assert "8085" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_impossible_ports_are_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The usual exit code of a wrong command line."""
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--grpc-port={port}"])
    assert ended.value.code == 2
    assert "1 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ["run", "dev", "doctor"]),
        (["run"], ["--insecure", "--grpc-port", "--metrics-port", "PERSYS_STORE=sqlite:"]),
        (["dev"], ["--nodes", "--runtime", "--examples", "--exit", "--no-live"]),
        (["doctor"], ["exit code is 1"]),
    ],
)
def test_help_says_what_there_is(
    command: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command explains itself."""
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert all(word in text for word in words)


def test_the_doctor_answers_with_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 where something fails."""
    monkeypatch.setenv("GRPC_PORT", "x")
    assert main(["doctor"]) == 1
    assert "GRPC_PORT" in capsys.readouterr().out


def test_misspelt_variables_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log of ``run`` has the near miss and not the value; the next fault is told, too."""
    monkeypatch.setenv("REDIS_PASWORD", "s3cr3t-XYZ")
    monkeypatch.setenv("PERSYS_STORE", "sqlite:state.db")
    monkeypatch.setenv("PERSYS_DATA_DIR", "/dev/null/x")
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    assert main(["run", "--insecure"]) == 1
    root.handlers[:], root.level = handlers, level
    text = capsys.readouterr().out
    assert "did you mean REDIS_PASSWORD?" in text
    assert "s3cr3t-XYZ" not in text
    assert "PERSYS_DATA_DIR=/dev/null/x cannot be used (Not a directory)" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_still_loads_ends_it_well(number: signal.Signals) -> None:
    """Who is told to end before anything is served ends with 0, as later, and says nothing."""
    start = "import sys; from persys_server.main import main; sys.exit(main())"
    command = (sys.executable, "-X", "importtime", "-c", start, "run", "--insecure")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(" structlog.exceptions\n"):
                break  # and much is still to come
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "serving" not in rest
    assert "Traceback" not in rest
