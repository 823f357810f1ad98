"""The demonstration, as a person starts it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.processes import run_program, started

pytestmark = pytest.mark.slow

DEMO = ("persys-server", "dev", "--runtime", "simulated")


def environment(folder: Path) -> dict[str, str]:
    """The machine's own, with temporary folders made below ``folder``."""
    ours = ("PERSYS_", "SCHEDULER_", "GRPC_PORT", "METRICS_PORT")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, "TMPDIR": str(folder)}


@pytest.mark.asyncio
async def test_the_demo_converges_and_leaves_nothing(tmp_path: Path) -> None:
    """Nodes join, work runs, a killed node's work moves, what waits is explained: exit code 0."""
    ended = await run_program(
        "persys-server",
        "dev",
        "--runtime",
        "simulated",
        "--exit",
        "--no-live",
        env=environment(tmp_path),
        seconds=90,
    )
    assert ended.code == 0, ended.out + ended.err
    assert ended.err == ""
    for words in ("sim-4 is Ready", "switched off", "Moved: ", "big: 0/4 nodes", "4 of 4 joined"):
        assert words in ended.out
    assert "migrate is Completed" in ended.out
    assert "NOT OK" not in ended.out
    assert os.listdir(tmp_path) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_the_demo_ends_at_once_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or a closed terminal amid the story is no error and leaves nothing."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with started(
        "persys-server",
        "dev",
        "--runtime",
        "simulated",
        "--no-live",
        log=tmp_path / "out",
        env=environment(scratch),
    ) as demo:
        await demo.says("Work is applied")
        demo.signal(number)
        assert await demo.ended(seconds=5) == 0
    assert "Traceback" not in demo.text
    assert os.listdir(scratch) == []


@pytest.mark.asyncio
async def test_the_demo_names_what_did_not_converge(tmp_path: Path) -> None:
    """A workload that the scheduler refuses is named with its reason, and the exit code is 1."""
    examples = tmp_path / "examples"
    examples.mkdir()
    spec = {"type": "container", "resources": {"cpuMillicores": "-5"}, "container": {"image": "x"}}
    (examples / "bad.json").write_text(json.dumps({"workloadId": "bad", "spec": spec}))
    ended = await run_program(
        *DEMO, "--exit", "--no-live", "--nodes", "1", "--examples", str(examples),
        env=environment(tmp_path),
    )  # fmt: skip
    assert ended.code == 1
    assert "did not converge: bad" in ended.err
    assert "cpu_millicores" in ended.out


@pytest.mark.asyncio
async def test_wrong_examples_stop_the_demo_before_it_starts(tmp_path: Path) -> None:
    """The problem is told as persysctl tells it; exit code 2."""
    (tmp_path / "bad.yaml").write_text("kind: Wrkload\n")
    ended = await run_program(
        "persys-server",
        "dev",
        "--runtime",
        "simulated",
        "--exit",
        "--examples",
        str(tmp_path),
        env=environment(tmp_path),
    )
    assert ended.code == 2
    assert "bad.yaml" in ended.err
