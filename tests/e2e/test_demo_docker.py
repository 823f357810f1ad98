"""The demonstration on real containers: they run, move with their nodes, and are gone at last."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from persys_agent.runtimes.docker.documents import text
from persys_agent.runtimes.docker.engine import Engine
from tests.e2e.processes import run_program, started
from tests.e2e.test_demo import environment
from tests.servers.dockerd import IMAGE, Dockerd, compose_binary, run_dockerd

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
IMAGES = ("nginx:1.27-alpine", "busybox:1.37", "redis:7-alpine")
LASTING = "trap 'exit 0' TERM; sleep 600 & wait"


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    """With busybox under the names of the examples' images, which serve nothing but last."""
    with run_dockerd() as running:
        for each in IMAGES:
            running.import_image(each, f"CMD {json.dumps(['sh', '-c', LASTING])}")
        yield running


@pytest_asyncio.fixture
async def engine(daemon: Dockerd) -> AsyncIterator[Engine]:
    made = Engine(daemon.endpoint)
    yield made
    await made.aclose()


async def everything(engine: Engine) -> set[str]:
    """All containers, volumes and networks of the daemon."""
    containers = [text(each, "Id") for each in await engine.containers({})]
    return {*containers, *await engine.volumes({}), *await engine.networks({})}


async def stranger(engine: Engine, name: str, **labels: str) -> str:
    """A container that no demonstration made."""
    return await engine.create(name, {"Image": IMAGE, "Labels": labels})


def surroundings(folder: Path, daemon: Dockerd) -> dict[str, str]:
    return {**environment(folder), "DOCKER_HOST": daemon.endpoint}


@pytest.mark.asyncio
async def test_real_containers_run_and_nothing_is_left(
    tmp_path: Path, daemon: Dockerd, engine: Engine
) -> None:
    """Containers, an application and a job run, a dead node's work moves; a user's own containers
    of the same names, and ports that are taken, stay as they were."""
    compose_binary()
    ours = await stranger(engine, "web", **{"persys.managed": "true", "persys.workload_id": "web"})
    before = await everything(engine)
    with socket.socket() as taken:
        with suppress(OSError):  # somebody else's is as good
            taken.bind(("0.0.0.0", 8080))
            taken.listen()
        ended = await run_program(
            "persys-server", "dev", "--exit", "--no-live", "--examples", str(EXAMPLES),
            env=surroundings(tmp_path, daemon), seconds=90,
        )  # fmt: skip
    assert ended.code == 0, ended.out + ended.err
    lines = ended.out.splitlines()
    assert "Runtime: real containers, on Docker" in lines[0]
    for words in (
        "Port 8080 is taken here", "machines are simulated", "node-4 is Ready", "switched off",
        "Moved: ", "migrate is Completed", "shop is Running", "5 of 5 joined", "SUBJECT",
    ):  # fmt: skip
        assert words in ended.out
    assert "runtime        ok" in ended.out
    assert "NOT OK" not in ended.out
    assert ours in before
    assert await everything(engine) == before
    assert os.listdir(tmp_path) == []
    await engine.delete(ours)


@pytest.mark.asyncio
async def test_a_killed_demo_is_cleared_away_by_the_next(
    tmp_path: Path, daemon: Dockerd, engine: Engine
) -> None:
    """Only what carries a demo's mark whose process is gone; and Ctrl-C leaves nothing either.

    What cannot be had is told in a line, and the rest goes on. Beside another demo, whose nodes may
    be called alike, nodes have other names.
    """
    examples = tmp_path / "examples"
    examples.mkdir()
    for name, image in (("one", "busybox:1.37"), ("two", "127.0.0.1:1/missing:1")):
        spec = {"type": "container", "container": {"image": image, "restartPolicy": "always"}}
        (examples / f"{name}.json").write_text(json.dumps({"workloadId": name, "spec": spec}))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    marks = {"persys.managed": "true", "persys.cluster_id": "persys-demo.elsewhere.a.b.1.2"}
    other = await stranger(engine, "other", **marks)
    before = await everything(engine)
    command = ("persys-server", "dev", "--no-live", "--nodes", "2", "--examples", str(examples))
    async with started(
        *command, log=tmp_path / "first", env=surroundings(scratch, daemon)
    ) as killed:
        await killed.says("one is Running on node")
        killed.signal(signal.SIGKILL)
        await killed.ended()
    assert await everything(engine) != before
    async with started(
        *command, log=tmp_path / "second", env=surroundings(scratch, daemon)
    ) as second:
        await second.says("Removed 1 containers of a demo that was killed")
        await second.says("Image 127.0.0.1:1/missing:1 cannot be had; left out: two")
        await second.says("one is Running on node")
        assert "on node-" not in second.text
        second.signal(signal.SIGINT)
        assert await second.ended(seconds=15) == 0
    assert "Traceback" not in second.text
    assert await everything(engine) == before
    await engine.delete(other)
