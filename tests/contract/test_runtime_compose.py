"""Compose applications on a real dockerd keep the contract of the Runtime port, and their own."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from attrs import evolve

from persys_agent.runtimes.compose.application import project
from persys_agent.runtimes.compose.cgroups import CGROUPS, CgroupTree
from persys_agent.runtimes.compose.escapes import check_file
from persys_agent.runtimes.compose.guard import Guard
from persys_agent.runtimes.compose.settings import ComposeSettings
from persys_agent.runtimes.docker.sweep import sweep
from persys_agent.runtimes.port import (
    Creation,
    FailureCode,
    Instance,
    Order,
    PortTakenError,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.testing.interactive import given
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import (
    RuntimeBench,
    closing,
    order_of,
    removing,
    until,
    until_state,
)
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ComposeSpec
from persys_core.model.workload import FailureKind
from persys_core.retry.failure import classify_failure
from tests.contract.compose_bench import ComposeBench, compose, service
from tests.contract.docker_bench import LASTING, MISSING_IMAGE, OWNER
from tests.servers.dockerd import IMAGE, Dockerd, compose_binary, run_dockerd

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
        (compose({"a": service(privileged=True)}), "not allowed on this node: a: priv"),
        (compose({"a": service(volumes=["../b:/b"])}), "folder of another application"),
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


def limits(name: str) -> tuple[str, str, str]:
    """What the kernel holds the project to: memory, memory with swap or swap, CPU time."""
    group = f"persys/{project(OWNER, name)}"
    if (CGROUPS / "cgroup.controllers").exists():
        places = ("memory.max", "memory.swap.max", "cpu.max")
        found = [(CGROUPS / group / each).read_text().split()[0] for each in places]
    else:
        found = [
            (CGROUPS / "memory" / group / "memory.limit_in_bytes").read_text().strip(),
            (CGROUPS / "memory" / group / "memory.memsw.limit_in_bytes").read_text().strip(),
            (CGROUPS / "cpu" / group / "cpu.cfs_quota_us").read_text().strip(),
        ]
    return (found[0], found[1], found[2])


def groups(name: str) -> list[Path]:
    """All that is left of the project among the kernel's groups."""
    return [*CGROUPS.glob(f"**/{project(OWNER, name)}")]


@pytest.mark.asyncio
async def test_services_together_have_no_more_than_is_asked_for(
    applications: ComposeBench,
) -> None:
    """The kernel holds all containers together to the workload's request; another revision changes
    it, one that needs more is ended for it, and the end of the application ends it (defect 26)."""
    capability = await applications.runtime.probe()
    assert "only each service" not in capability.detail
    name = applications.new_id()
    asked = Resources.of(cpu_millicores=500, memory_mb=48)
    two = {"a": service(), "b": service(cpus=0.2, mem_limit="16m")}
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose(two, asked=asked)))
        assert limits(name)[::2] == (str(48 << 20), "50000")
        assert limits(name)[1] in (str(48 << 20), "0")
        shown = applications.daemon.containers()
        hosts = [each["HostConfig"] for each in shown.values() if holds(each, name)]
        alone = sorted((each["NanoCpus"], each["Memory"], each["MemorySwap"]) for each in hosts)
        assert alone == [
            (200_000_000, 16 << 20, 16 << 20),
            (500_000_000, 48 << 20, 48 << 20),
        ]
        greedy = service("head -c 40m /dev/zero | tail -c 40m >/dev/null; exit 7")
        both = {"a": greedy, "b": greedy}
        less = Resources.of(cpu_millicores=1000, memory_mb=24)
        await run(applications, order_of(name, compose(both, asked=less)))
        assert limits(name)[::2] == (str(24 << 20), "100000")
        failed = await until_state(applications.runtime, name, AgentState.FAILED)
        assert failed.exit_code in (7, 137)
        assert "memory" in failed.message.lower()
        more = Resources.of(cpu_millicores=250, memory_mb=96)
        await run(applications, order_of(name, compose(two, asked=more)))
        assert limits(name)[::2] == (str(96 << 20), "25000")
    assert groups(name) == []


@pytest.mark.asyncio
async def test_limits_come_back_with_the_host(applications: ComposeBench) -> None:
    """Docker starts containers by itself, in groups that have no limits after a start of the host:
    an agent that comes up looks at what runs, and holds it again."""
    name = applications.new_id()
    asked = Resources.of(cpu_millicores=500, memory_mb=48)
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose({"a": service()}, asked=asked)))
        await asyncio.to_thread(CgroupTree(CGROUPS).limit, project(OWNER, name), Resources())
        assert limits(name)[0] != str(48 << 20)
        assert len(await (await applications.again()).instances()) == 1
        await asyncio.gather(*(it for it in asyncio.all_tasks() if it.get_name()[:6] == "limit-"))
        assert limits(name)[::2] == (str(48 << 20), "50000")


@pytest.mark.asyncio
async def test_one_container_elsewhere_takes_no_limits_away(applications: ComposeBench) -> None:
    """Where an older revision left a container without a parent, first of all, those that stand
    below one are held as before."""
    name = applications.new_id()
    asked = Resources.of(cpu_millicores=500, memory_mb=48)
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose({"web": service()}, asked=asked)))
        shown = next(
            each for each in applications.daemon.containers().values() if holds(each, name)
        )
        labels = {**shown["Config"]["Labels"], "com.docker.compose.service": "aaa"}
        older = {
            "Image": IMAGE,
            "Cmd": ["sleep", "600"],
            "Labels": {**labels, "persys.cgroup_parent": ""},
            "HostConfig": {"NetworkMode": "none"},
        }
        await applications.engine.start(await applications.engine.create(f"{name}-aaa", older))
        await asyncio.to_thread(CgroupTree(CGROUPS).limit, project(OWNER, name), Resources())
        await (await applications.again()).start(name)
        assert limits(name)[::2] == (str(48 << 20), "50000")


@pytest.mark.asyncio
async def test_a_sweep_leaves_no_group(applications: ComposeBench) -> None:
    """What demos and tests leave is cleared away with the groups above it."""
    name = applications.new_id()
    spec = compose({"a": service()}, asked=Resources.of(memory_mb=32))
    await run(applications, order_of(name, spec))
    assert groups(name) != []
    await sweep(applications.engine, lambda cluster_id: cluster_id == OWNER.cluster_id)
    assert groups(name) == []
    await applications.runtime.remove(name, with_data=True)


def holds(shown: dict[str, Any], name: str) -> bool:
    return bool(shown["Config"]["Labels"].get("persys.workload_id") == name)


@pytest.mark.asyncio
async def test_without_a_parent_each_service_is_held_to_the_whole(
    daemon: Dockerd, tmp_path: Path
) -> None:
    """Where the agent may write no cgroups every service alone is limited, as the probe says."""
    settings = evolve(SETTINGS, cgroups=tmp_path / "none")
    bench = ComposeBench(daemon, tmp_path / "projects", settings)
    async with closing(bench):
        name = bench.new_id()
        assert "only each service alone is limited" in (await bench.runtime.probe()).detail
        spec = compose({"a": service()}, asked=Resources.of(cpu_millicores=500, memory_mb=32))
        async with removing(bench.runtime, name):
            await run(bench, order_of(name, spec))
            shown = [each for each in daemon.containers().values() if holds(each, name)]
            host = shown[0]["HostConfig"]
            assert (host["CgroupParent"], host["Memory"]) == ("", 32 << 20)


@pytest.mark.asyncio
async def test_without_a_parent_no_service_has_more_by_another_spelling(
    daemon: Dockerd, tmp_path: Path
) -> None:
    """Containers of one service share the whole, limits that are inherited count, a quota counts
    with its period; what leaves a container too little memory is refused."""
    settings = evolve(SETTINGS, cgroups=tmp_path / "none")
    bench = ComposeBench(daemon, tmp_path / "projects", settings)
    asked = Resources.of(cpu_millicores=300, memory_mb=48)
    limited = {"resources": {"limits": {"cpus": "1.5"}}}
    reserved = {"resources": {"reservations": {"memory": "16m"}}}
    parts = {
        "base": service(deploy=limited),
        "heir": {"extends": {"service": "base"}, "deploy": reserved},
        "many": service(scale=3),
        "quota": service(cpu_quota=20_000, cpu_period=20_000),
    }
    async with closing(bench):
        name = bench.new_id()
        async with removing(bench.runtime, name):
            await bench.runtime.create(order_of(name, compose(parts, asked=asked)))
            shown = [each for each in daemon.containers().values() if holds(each, name)]
            found = sorted(
                (each["Config"]["Labels"]["com.docker.compose.service"], cores(each["HostConfig"]))
                for each in shown
            )
            assert found == [
                ("base", 0.3),
                ("heir", 0.3),
                *[("many", 0.1)] * 3,
                ("quota", 0.3),
            ]
            assert {each["HostConfig"]["Memory"] >> 20 for each in shown} == {16, 48}
        nine = compose({"a": service(scale=9)}, asked=asked)
        with pytest.raises(RuntimeFailedError, match=r"a: a memory limit of .* for 9 of") as raised:
            await bench.runtime.create(order_of(name, nine))
        assert raised.value.code is FailureCode.INVALID_SPEC
        assert await bench.leftovers(name) == []


def cores(host: dict[str, Any]) -> float:
    """What CPU time the Engine gives a container."""
    return float(host["NanoCpus"] / 1e9 or host["CpuQuota"] / (host["CpuPeriod"] or 100_000))


@pytest.mark.asyncio
async def test_what_is_adopted_stays_where_it_stands(
    applications: ComposeBench, daemon: Dockerd
) -> None:
    """An agent that could have no parent any more leaves one that has containers in it alone."""
    name = applications.new_id()
    order = order_of(name, compose({"a": service()}, asked=Resources.of(memory_mb=32)))
    async with removing(applications.runtime, name):
        await run(applications, order)
        settings = evolve(SETTINGS, cgroups=applications.root / "none")
        bench = ComposeBench(daemon, applications.root, settings)
        async with closing(bench):
            assert await bench.runtime.create(order) is Creation.ADOPTED
            await bench.runtime.start(name)
        assert limits(name)[0] == str(32 << 20)


@pytest.mark.asyncio
async def test_what_was_made_is_judged_before_it_runs(
    applications: ComposeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may say things in ways that only Compose understands, as if it were not looked at:
    nothing of it is started, and nothing is left."""
    place = "persys_agent.runtimes.compose.application.check_file"
    monkeypatch.setattr(place, lambda *_: None)
    name = applications.new_id()
    hidden = service(pid="host")
    with pytest.raises(RuntimeFailedError, match="web: pid: host") as raised:
        await applications.runtime.create(order_of(name, compose({"web": hidden})))
    assert raised.value.code is FailureCode.INVALID_SPEC
    assert await applications.leftovers(name) == []
    await run(applications, order_of(name, compose({"web": service()})))
    async with removing(applications.runtime, name):
        with pytest.raises(RuntimeFailedError, match="web: pid: host"):
            await applications.runtime.create(order_of(name, compose({"web": hidden})))
        assert await applications.runtime.inspect(name) is None


@pytest.mark.asyncio
async def test_a_refused_revision_leaves_what_runs(
    applications: ComposeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Compose understands of the file is judged before it makes anything."""
    name = applications.new_id()
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose({"a": service(), "b": service()})))
        before = applications.daemon.containers()
        overlooked = [check_file]

        def second_look(*asked: Any) -> None:
            if not overlooked:
                check_file(*asked)
            overlooked.clear()

        monkeypatch.setattr("persys_agent.runtimes.compose.application.check_file", second_look)
        spec = compose({"a": service(), "b": service(ipc="host")})
        with pytest.raises(RuntimeFailedError, match="b: ipc: host") as raised:
            await applications.runtime.create(order_of(name, spec))
        assert raised.value.code is FailureCode.INVALID_SPEC
        assert set(applications.daemon.containers()) == set(before)
        found = await applications.runtime.inspect(name)
        assert found is not None
        assert services(found) == "a=running, b=running"


@pytest.mark.asyncio
async def test_volumes_are_made_as_the_file_says(applications: ComposeBench) -> None:
    """With their options, by every Compose."""
    name = applications.new_id()
    options = {"type": "tmpfs", "device": "tmpfs", "o": "size=1m"}
    volumes = {"memory": {"driver": "local", "driver_opts": options}}
    spec = compose({"a": service(volumes=["memory:/m"])}, volumes=volumes)
    async with removing(applications.runtime, name):
        await applications.runtime.create(order_of(name, spec))
        label = {"com.docker.compose.project": project(OWNER, name)}
        made = await applications.engine.shown_volumes(label)
        assert [each["Options"] for each in made] == [options]


@pytest.mark.asyncio
async def test_no_variable_of_composes_own_leads_out(applications: ComposeBench) -> None:
    """The agent knows not all that it has; of v1 such a form is not understood."""
    name = applications.new_id()
    (applications.root / "other").mkdir(parents=True)
    out = service(volumes=["./data${DOCKER_HOST:+/../../other}:/x"])
    told = "folder of another application|Invalid interpolation"
    with pytest.raises(RuntimeFailedError, match=told) as raised:
        await applications.runtime.create(order_of(name, compose({"a": out})))
    assert raised.value.code is FailureCode.INVALID_SPEC
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_what_nobody_looked_at_is_neither_adopted_nor_started(
    applications: ComposeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent may die between having something made and looking at it."""
    name = applications.new_id()
    order = order_of(name, compose({"web": service(ipc="host")}))
    place = "persys_agent.runtimes.compose.application.check_file"
    monkeypatch.setattr(place, lambda *_: None)
    async with removing(applications.runtime, name):
        with monkeypatch.context() as dying:
            dying.setattr(Guard, "check_made", AsyncMock())
            await applications.runtime.create(order)
        runtime = await applications.again()
        for act in (lambda: runtime.create(order), lambda: runtime.start(name)):
            with pytest.raises(RuntimeFailedError, match="web: ipc: host") as raised:
                await act()
            assert raised.value.code is FailureCode.INVALID_SPEC
        found = await runtime.inspect(name)
        assert found is not None
        assert services(found) == "web=created"


@pytest.mark.asyncio
async def test_nothing_is_left_of_what_could_not_be_looked_at(
    applications: ComposeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends a creation, what it made goes."""
    name = applications.new_id()
    silent = AsyncMock(side_effect=RuntimeUnavailableError("the daemon is silent"))
    monkeypatch.setattr(Guard, "check_made", silent)
    with pytest.raises(RuntimeUnavailableError, match="silent"):
        await applications.runtime.create(order_of(name, compose({"web": service()})))
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_a_container_of_no_known_service_is_not_started(applications: ComposeBench) -> None:
    """It would have neither labels nor limits: somebody reads the file otherwise than we do."""
    name = applications.new_id()
    async with removing(applications.runtime, name):
        await applications.runtime.create(order_of(name, compose({"web": service()})))
        labels = {"com.docker.compose.project": project(OWNER, name)}
        await applications.engine.create(f"{name}-on", {"Image": IMAGE, "Labels": labels})
        with pytest.raises(RuntimeFailedError, match="of no service that stands plainly"):
            await applications.runtime.start(name)
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_relative_binds_are_data_of_the_application(applications: ComposeBench) -> None:
    """They lie in the project's folder, outlive it as named volumes do, and go with its data; a
    failed creation takes away what it made, and nothing that was there."""
    name = applications.new_id()
    writer = service("echo kept > /data/file", volumes=["./data:/data"])
    async with removing(applications.runtime, name):
        await run(applications, order_of(name, compose({"a": writer})))
        await until(applications.runtime, name, lambda it: it.exit_code == 0)
        file = applications.root / project(OWNER, name) / "data" / "file"
        assert file.read_text() == "kept\n"
        await applications.runtime.remove(name)
        assert file.read_text() == "kept\n"
        bad: dict[str, dict[str, object]] = {
            "a": service(volumes=["./more:/more"]),
            "z": {"image": MISSING_IMAGE},
        }
        with pytest.raises(RuntimeFailedError):
            await applications.runtime.create(order_of(name, compose(bad)))
        assert [each.name for each in file.parent.parent.iterdir()] == ["data"]
    assert await applications.leftovers(name) == []


@pytest.mark.asyncio
async def test_pull_policies(applications: ComposeBench) -> None:
    """What may never be pulled is missing, what is always pulled needs its registry; an unknown
    word is an invalid spec."""
    name = applications.new_id()
    missing: dict[str, dict[str, object]] = {"a": {"image": MISSING_IMAGE}}
    here: dict[str, dict[str, object]] = {"a": service()}
    for services, word, code in (
        (missing, "never", FailureCode.IMAGE_NOT_FOUND),
        (here, "sometimes", FailureCode.INVALID_SPEC),
    ):
        spec = compose(services, metadata={"persys.agent.pull_policy": word})
        with pytest.raises(RuntimeFailedError, match=word) as raised:
            await applications.runtime.create(order_of(name, spec))
        assert raised.value.code is code
    always = compose(missing, metadata={"persys.agent.pull_policy": "always"})
    with pytest.raises(RuntimeFailedError, match="cannot be pulled") as raised:
        await applications.runtime.create(order_of(name, always))
    assert raised.value.code is FailureCode.IMAGE_PULL_FAILED
    never = compose(here, metadata={"persys.agent.pull_policy": "never"})
    async with removing(applications.runtime, name):
        assert await applications.runtime.create(order_of(name, never)) is Creation.CREATED
