"""`persys-agent doctor`, as an operator calls it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.e2e.processes import free_port, run_program

pytestmark = pytest.mark.slow


@pytest.mark.asyncio
async def test_the_doctor_names_what_is_missing(tmp_path: Path) -> None:
    """A node without any runtime fails, each finding says what to do, and nothing is made."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PERSYS_")}
    data = tmp_path / "data"
    settings = tmp_path / "agent_config.yaml"
    settings.write_text(
        f"agent_data_dir: {data}\nmetrics_port: {free_port()}\nstandalone: true\n"
        f"docker_endpoint: unix://{tmp_path}/none.sock\nvm_enabled: false\n"
        "firecracker_enabled: false\ncompose_binary: echo compose\n"
    )
    call = (
        *("persys-agent", "doctor", "--json", "--insecure", "--config", str(settings)),
        *("--listen", "127.0.0.1", "--port", str(free_port())),
    )
    ended = await run_program(*call, env=kept)
    assert ended.code == 1
    assert ended.err == "", "what it runs is told to those who ask for it"
    assert "event='command'" in (await run_program(*call, "--verbose", env=kept)).err
    report = json.loads(ended.out)
    found = {each["check"]: each for each in report["findings"]}
    assert report["ok"] is False
    assert found["runtimes"]["verdict"] == "fail"
    assert found["container"]["found"].endswith("does not answer: No such file or directory")
    assert "dockerd" in found["container"]["advice"]
    assert found["vm"]["found"] == "switched off by vm_enabled"
    assert not data.exists()
