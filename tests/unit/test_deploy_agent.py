"""The files in `deploy/agent` fit our settings, our exit codes and what the agent has to do."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from persys_agent import process
from persys_agent.options import NodeRun, parse_command
from persys_agent.settings import Places, load_settings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "agent" / "persys-agent.service"
OWN_VIEW = (
    "ProtectSystem", "ProtectHome", "ProtectProc", "ProtectKernelTunables", "ProtectKernelModules",
    "ProtectKernelLogs", "ProtectControlGroups", "PrivateTmp", "PrivateDevices", "PrivateMounts",
    "PrivateUsers", "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "BindPaths",
    "TemporaryFileSystem", "RootDirectory", "RootImage", "DynamicUser", "MountFlags",
)  # fmt: skip
"""Options that give a unit a mount namespace of its own."""


def unit() -> configparser.SectionProxy:
    """The section of the systemd unit that says how it is run."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read(UNIT)
    return parser["Service"]


def test_the_unit_starts_a_node() -> None:
    """Its command line is one that we take, and its folder is that of the settings of root."""
    program, *words = shlex.split(unit()["ExecStart"])
    assert Path(program).name == "persys-agent"
    assert isinstance(parse_command(words, {"PERSYS_STANDALONE": "true"}), NodeRun)
    root = Places.of(is_root=True, home=Path("/nonexistent"), working=Path("/nonexistent"))
    assert f"/var/lib/{unit()['StateDirectory']}" == load_settings({}, places=root).agent_data_dir


def test_the_unit_is_always_started_again() -> None:
    """A dead agent keeps no promise to stop; wrong settings are not tried again."""
    assert unit()["Restart"] == "always"
    assert unit()["RestartPreventExitStatus"] == str(process._EXIT_USAGE)
    assert "StartLimitIntervalSec=0" in UNIT.read_text()


def test_stopping_the_unit_stops_no_workload() -> None:
    """MicroVMs are processes of the unit: only the agent itself is ended."""
    assert unit()["KillMode"] == "process"


@pytest.mark.parametrize("option", OWN_VIEW)
def test_the_unit_mounts_for_all(option: str) -> None:
    """A volume mounted in a namespace of the unit would be an empty folder for Docker."""
    assert option not in unit()


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """Each option is one that systemd knows, where it can be asked."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/persys/bin/persys-agent", "/bin/true"))
    told = subprocess.run(
        [program, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    lines = [line for line in told.stderr.splitlines() if UNIT.name in line]
    assert lines == []
