"""Compose applications on a real dockerd keep the contract of the Runtime port, and their own."""

from __future__ import annotations

import base64
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from attrs import evolve

from persys_agent.runtimes.compose.application import project
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.port import (
    Creation,
    FailureCode,
    Instance,
    Order,
    PortTakenError,
    RuntimeFailedError,
)
from persys_agent.testing.interactive import given
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import RuntimeBench, order_of, removing, until, until_state
from persys_core.model.observation import AgentState
from persys_core.model.spec import ComposeSpec
from persys_core.model.workload import FailureKind
from persys_core.retry.failure import classify_failure
from tests.contract.compose_bench import ComposeBench, compose, service
from tests.contract.docker_bench import LASTING, MISSING_IMAGE, OWNER
from tests.servers.dockerd import Dockerd, compose_binary, run_dockerd

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = ComposeSettings(removal_grace=timedelta(seconds=1))

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    compose_binary()
    with run_dockerd() as running:
        yield running


@pytest_asyncio.fixture
async def applications(daemon: Dockerd, tmp_path: Path) -> AsyncIterator[ComposeBench]:
    bench = ComposeBench(daemon, tmp_path / "projects", SETTINGS)
    yield bench
    await bench.aclose()


class TestComposeRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, daemon: Dockerd, tmp_path: Path) -> RuntimeBench:
        return ComposeBench(daemon, tmp_path / "projects", SETTINGS)


async def run(bench: ComposeBench, order: Order) -> None:
    await bench.runtime.create(order)
    await bench.runtime.start(order.workload_id)


@pytest.mark.asyncio
async def test_named_volumes_outlive_revisions(applications: ComposeBench) -> None:
    """A changed application keeps what its named volumes hold, loses a service that it has no
    more, and is gone without a trace only when its data may go too (defect 31)."""
    name, shared = applications.new_id(), {"volumes": ["data:/data"]}
    first = compose(
        {
            "writer": service("echo kept > /data/file", network_mode=None, **shared),
            "extra": service(),
        },
        volumes={"data": None},
    )
    second = compose({"reader": service("cat /data/file", **shared)}, volumes={"data": None})
    await run(applications, order_of(name, first))
    await until(applications.runtime, name, lambda it: "writer=exited(0)" in services(it))
    assert await applications.runtime.create(order_of(name, second)) is Creation.REPLACED
    await applications.runtime.start(name)
    ended = await until(applications.runtime, name, lambda it: it.exit_code == 0)
    assert services(ended) == "reader=exited(0)"
    lines = [line async for line in applications.interactive.logs(name, tail=1, follow=False)]
    assert [(line.text, line.source) for line in lines] == [("kept", "reader")]
    await applications.runtime.remove(name)
    assert await applications.leftovers(name) == [f"{project(OWNER, name)}_data"]
    await applications.runtime.remove(name, with_data=True)
    assert await applications.leftovers(name) == []


def services(found: Instance) -> str:
    return found.metadata["compose.services"]


@pytest.mark.asyncio
async def test_variables_arrive_as_they_are_and_stay_private(applications: ComposeBench) -> None:
    """Whatever stands in a variable reaches the service unchanged; its file is for nobody else to
    read, and goes with the last variable (defect 31)."""
    name = applications.new_id()
    env = {
        "A": "with 'quotes' \"of both\" kinds",
        "B": "$HOME ${HOME} $$ {x} `id`",
        "C": "back\\slash \\n # no comment",
        "D": "two\nlines",
        "E": "",
    }
    shown = service("env | base64", environment={key: f"${{{key}}}" for key in env})
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose({"app": shown}, env=env)))
        await until(applications.runtime, name, lambda it: it.exit_code == 0)
        lines = [line async for line in applications.interactive.logs(name, tail=99, follow=False)]
        printed = base64.b64decode("".join(line.text for line in lines)).decode()
        for key, value in env.items():
            assert f"{key}={value}\n" in printed
        folder = applications.root / project(OWNER, name)
        assert folder.stat().st_mode & 0o777 == 0o700
        modes = {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir()}
        assert modes == {".env": 0o600, "compose.yaml": 0o600, "persys.yaml": 0o600}
        await applications.runtime.create(order_of(name, compose({"app": service()})))
        assert not (folder / ".env").exists()


@pytest.mark.asyncio
async def test_a_bad_file_is_refused_at_once(applications: ComposeBench) -> None:
    """What is no Compose file is an invalid spec, with the line, or Compose's own words."""
    name = applications.new_id()
    body = ComposeSpec(inline_yaml="services:\n  a: {}\n b: 1\n")
    broken = evolve(compose({"a": {}}), body=body)
    for spec, told in (
        (broken, "no YAML in line 3"),
        (compose({}), "has no services"),
        (compose({"a": service(privileged=True)}), "not allowed on this node: a"),
        (compose({"a": {"imag": "x"}}), "imag"),
        (compose({"a": service()}, metadata={"persys.agent.exec_service": "b"}), '"b" is not one'),
    ):
        with pytest.raises(RuntimeFailedError, match=told) as raised:
            await applications.runtime.create(order_of(name, spec))
        assert raised.value.code is FailureCode.INVALID_SPEC
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_a_failed_creation_leaves_no_volume(applications: ComposeBench) -> None:
    """Networks and volumes that Compose had made before it failed are taken away."""
    name = applications.new_id()
    parts: dict[str, dict[str, object]] = {
        "good": service(volumes=["data:/data"]),
        "bad": {"image": MISSING_IMAGE},
    }
    with pytest.raises(RuntimeFailedError) as raised:
        await applications.runtime.create(
            order_of(name, compose(parts, volumes={"data": None}, networks={"net": None}))
        )
    assert raised.value.code is FailureCode.IMAGE_PULL_FAILED
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_the_state_is_of_the_whole(applications: ComposeBench) -> None:
    """What ended well is done; one that fails fails the application, with its last line; logs and
    commands say and choose the service; usage is of all together."""
    name = applications.new_id()
    spec = compose(
        {
            "once": service("echo prepared"),
            "app": service(f"echo serving; {LASTING}"),
            "side": service("trap 'echo why >&2; exit 4' USR1; echo helping; sleep 99 & wait"),
        },
        metadata={"persys.agent.exec_service": "side"},
    )
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, spec))
        whole = await until(applications.runtime, name, lambda it: "done" in it.message)
        assert (whole.state, whole.message) == (
            AgentState.RUNNING,
            "2/2 containers running, 1 done",
        )
        lines = [line async for line in applications.interactive.logs(name, tail=9, follow=False)]
        assert {(line.source, line.text) for line in lines} == {
            ("once", "prepared"),
            ("app", "serving"),
            ("side", "helping"),
        }
        usage = await applications.interactive.usage()
        assert set(usage) == {name}
        assert usage[name].source == "compose.stats"
        command = ["sh", "-c", "kill -USR1 1; hostname"]
        async for _ in applications.interactive.execute(name, command, given()):
            pass
        failed = await until_state(applications.runtime, name, AgentState.FAILED)
        assert failed.message == "service side: exited with code 4: why"


@pytest.mark.asyncio
async def test_a_port_conflict_is_told_by_compose(applications: ComposeBench) -> None:
    """A port that somebody else has is a conflict, whoever found out."""
    name = applications.new_id()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        app = service(ports=[f"127.0.0.1:{port}:80"], network_mode=None)
        async with removing(applications.runtime, name):
            await applications.runtime.create(order_of(name, compose({"app": app})))
            with pytest.raises(PortTakenError, match=f"host port {port} is taken by") as raised:
                await applications.runtime.start(name)
            failure = classify_failure(raised.value.code, str(raised.value), NOW)
            assert failure.kind is FailureKind.WORKLOAD  # it may be free soon, and elsewhere


@pytest.mark.asyncio
async def test_all_services_are_followed_to_the_last(applications: ComposeBench) -> None:
    """Lines of all services come as they are written, none twice, until the last one ends; what is
    not there, or does not run, has nothing to follow and runs no command."""
    name = applications.new_id()
    spec = compose(
        {"a": service("echo a1; sleep 0.5; echo a2"), "b": service("echo b1; sleep 1; echo b2")}
    )
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, spec))
        found = [line async for line in applications.interactive.logs(name, tail=9, follow=True)]
        texts = [line.text for line in found]
        assert sorted(texts) == ["a1", "a2", "b1", "b2"]
        assert [line for line in texts if line.endswith("2")] == ["a2", "b2"]
        with pytest.raises(RuntimeFailedError):
            async for _ in applications.interactive.execute(name, ["true"], given()):
                pass
    with pytest.raises(RuntimeFailedError):
        async for _ in applications.interactive.logs(name, tail=9, follow=True):
            pass
