"""Containers on a real dockerd keep the contract of the Runtime port, and what Docker adds.

Size: one daemon for all of it, since each costs the time of several tests.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from aiodocker.execs import Exec
from attrs import evolve

from persys_agent.runtimes.docker.documents import flag
from persys_agent.runtimes.docker.engine import Engine
from persys_agent.runtimes.docker.execution import Target, run_inside, target_of
from persys_agent.runtimes.docker.settings import DockerSettings
from persys_agent.runtimes.port import (
    AttachedVolume,
    Creation,
    ExecExit,
    ExecOutput,
    FailureCode,
    Order,
    PortTakenError,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.settings import ContainerNames
from persys_agent.testing.interactive import InteractiveBench, InteractiveSuite, given
from persys_agent.testing.runtime import RuntimeSuite
from persys_agent.testing.runtime_bench import (
    GRACE,
    RuntimeBench,
    order_of,
    removing,
    until,
    until_state,
)
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, ManagedVolume, PortMapping, VolumeMount
from persys_core.model.states import RestartPolicy
from tests.contract.docker_bench import LASTING, MISSING_IMAGE, OWNER, DockerBench, container
from tests.e2e.processes import eventually
from tests.servers.dockerd import IMAGE, Dockerd, run_dockerd
from tests.servers.registry import Registry, run_registry

SETTINGS = DockerSettings(
    publish_address="127.0.0.1",
    replace_grace=timedelta(seconds=1),
    call_timeout=timedelta(seconds=20),
)
WITH_VOLUME = "local/with-volume:1"
SLEEP = ("sh", "-c", LASTING)

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Dockerd]:
    with run_dockerd() as running:
        running.import_image(WITH_VOLUME, "VOLUME /data")
        yield running


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with run_registry() as running:
        yield running


@pytest_asyncio.fixture
async def docker(daemon: Dockerd) -> AsyncIterator[DockerBench]:
    bench = DockerBench(daemon, SETTINGS)
    yield bench
    await bench.aclose()


class TestDockerRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, daemon: Dockerd) -> RuntimeBench:
        return DockerBench(daemon, SETTINGS)


class TestInteractiveDocker(InteractiveSuite):
    @pytest.fixture
    def talk(self, daemon: Dockerd) -> InteractiveBench:
        return DockerBench(daemon, SETTINGS)


async def run(bench: DockerBench, order: Order) -> None:
    await bench.runtime.create(order)
    await bench.runtime.start(order.workload_id)


async def read_inside(bench: DockerBench, name: str, *paths: str) -> str:
    """The content of the first of these files that is there."""
    command = ["sh", "-c", " || ".join(f"cat {each} 2>/dev/null" for each in paths)]
    written = b""
    async for item in bench.interactive.execute(name, command, given()):
        if isinstance(item, ExecOutput):
            written += item.data
    return written.decode().strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.asyncio
async def test_the_beginning_of_an_id_is_nobodys_name(docker: DockerBench) -> None:
    """The Engine also finds containers by how their ids begin, and takes no name of one letter; a
    workload may be called so nevertheless."""
    other = docker.new_id()
    async with removing(docker.runtime, other):
        await run(docker, order_of(other, container()))
        shown = await docker.engine.show(other)
        assert shown is not None
        for length in (5, 1):
            name = str(shown["Id"])[:length]
            assert await docker.runtime.inspect(name) is None
            async with removing(docker.runtime, name):
                assert await docker.runtime.create(order_of(name, container())) is Creation.CREATED
                await docker.runtime.start(name)
                await until_state(docker.runtime, name, AgentState.RUNNING)
                assert name in {each.workload_id for each in await docker.runtime.instances()}
            assert await docker.runtime.inspect(name) is None
        assert await docker.runtime.inspect(other) is not None


@pytest.mark.asyncio
async def test_limits_are_those_of_the_cgroup(docker: DockerBench) -> None:
    """CPU and memory of the spec are limits that the kernel holds, swap included (defect 26)."""
    name = docker.new_id()
    spec = container(resources=Resources.of(cpu_millicores=250, memory_mb=64))
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, spec))
        memory = await read_inside(
            docker, name, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
        )
        assert int(memory) == 64 * 1024 * 1024
        cpu = await read_inside(
            docker, name, "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"
        )
        assert cpu.split()[0] == "25000"


@pytest.mark.asyncio
async def test_privileges_need_the_node_to_allow_them(daemon: Dockerd) -> None:
    """A container that asks for all rights of the host is refused, and is made with them where its
    node allows it; nothing is left of what was refused."""
    spec = container(body=ContainerSpec(IMAGE, SLEEP, privileged=True))
    for allowed in (False, True):
        bench = DockerBench(daemon, evolve(SETTINGS, allow_privileged=allowed))
        name = bench.new_id()
        async with removing(bench.runtime, name):
            if allowed:
                await bench.runtime.create(order_of(name, spec))  # a test's host may not run it
                shown = await bench.engine.show(name)
                assert shown is not None
                assert flag(shown, "HostConfig", "Privileged")
            else:
                with pytest.raises(RuntimeFailedError, match="not allowed on this node") as refused:
                    await bench.runtime.create(order_of(name, spec))
                assert refused.value.code is FailureCode.INVALID_SPEC
                assert await bench.runtime.inspect(name) is None
        await bench.aclose()


@pytest.mark.asyncio
async def test_a_kill_for_memory_is_said(docker: DockerBench) -> None:
    """Whoever takes more memory than it may is told so, with the limit."""
    name = docker.new_id()
    spec = container("exec tail /dev/zero", resources=Resources.of(memory_mb=16))
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, spec))
        ended = await until_state(docker.runtime, name, AgentState.FAILED)
        assert ended.message == "exited with code 137: out of memory (limit 16 MB)"


@pytest.mark.asyncio
async def test_ports_are_bound_and_reported(docker: DockerBench) -> None:
    """Port 0 is an assigned one, one container port may have several, and all are told (29)."""
    name, wanted = docker.new_id(), free_port()
    ports = (PortMapping(0, 80), PortMapping(wanted, 80), PortMapping(0, 53, "udp"))
    body = ContainerSpec(IMAGE, ("httpd", "-f", "-p", "80"), ports=ports)
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container(body=body)))
        found = await until(docker.runtime, name, lambda it: len(it.ports) == 3)
        tcp = {each.host_port for each in found.ports if each.protocol == "tcp"}
        assert wanted in tcp
        assert len(tcp) == 2
        assert all(each.host_port > 0 for each in found.ports)
        assert f"{wanted}->80/tcp" in found.metadata["container.ports"].split(", ")
        for port in tcp:
            socket.create_connection(("127.0.0.1", port), 5).close()


@pytest.mark.asyncio
async def test_a_port_conflict_is_explained(docker: DockerBench) -> None:
    """A taken port is named, with the container that holds it, or another program."""
    first, second, third = (docker.new_id() for _ in range(3))
    port = free_port()
    spec = container(body=ContainerSpec(IMAGE, SLEEP, ports=(PortMapping(port, 80),)))
    async with removing(docker.runtime, first, second), removing(docker.runtime, third):
        await run(docker, order_of(first, spec))
        await docker.runtime.create(order_of(second, spec))
        with pytest.raises(
            RuntimeFailedError, match=f'{port} is taken by container "{first}"'
        ) as at:
            await docker.runtime.start(second)
        assert at.value.code is FailureCode.PORT_CONFLICT
        assert isinstance(at.value, PortTakenError)
        assert at.value.holder == first
        theirs = docker.new_id()
        async with removing(docker.neighbour, theirs):
            await docker.neighbour.create(order_of(theirs, spec))
            with pytest.raises(PortTakenError) as elsewhere:
                await docker.neighbour.start(theirs)
            assert elsewhere.value.holder == ""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            taken = other.getsockname()[1]
            body = ContainerSpec(IMAGE, SLEEP, ports=(PortMapping(taken, 80),))
            await docker.runtime.create(order_of(third, container(body=body)))
            with pytest.raises(
                RuntimeFailedError, match=f"{taken} is taken by another program"
            ) as at:
                await docker.runtime.start(third)
            assert isinstance(at.value, PortTakenError)
            assert at.value.holder is None


@pytest.mark.asyncio
async def test_a_wiped_neighbour_takes_nothing_along(docker: DockerBench) -> None:
    """Two agents on one daemon: one removes all of its work, the other's runs on (defect 3)."""
    ours, theirs = docker.new_id(), [docker.new_id() for _ in range(2)]
    async with removing(docker.runtime, ours):
        await run(docker, order_of(ours, container()))
        for each in theirs:
            await docker.neighbour.create(order_of(each, container()))
        for found in await docker.neighbour.instances():
            await docker.neighbour.remove(found.workload_id, with_data=True)
        assert await docker.neighbour.instances() == []
        await until_state(docker.runtime, ours, AgentState.RUNNING)
        with pytest.raises(RuntimeFailedError, match=f'of node "{OWNER.node_id}"'):
            await docker.neighbour.create(order_of(ours, container()))
        other_cluster = docker.of(evolve(OWNER, cluster_id="another"))
        assert await other_cluster.instances() == []
        assert await other_cluster.inspect(ours) is None


@pytest.mark.parametrize(
    ("repository", "code"),
    [
        ("missing/app", FailureCode.IMAGE_NOT_FOUND),
        ("secret/app", FailureCode.IMAGE_PULL_AUTH_FAILED),
        ("denied/app", FailureCode.IMAGE_PULL_AUTH_FAILED),
        ("broken/app", FailureCode.IMAGE_PULL_FAILED),
        ("slow/app", FailureCode.IMAGE_PULL_TIMEOUT),
    ],
)
@pytest.mark.asyncio
async def test_pulls_fail_for_what_they_fail(
    daemon: Dockerd, registry: Registry, tmp_path: Path, repository: str, code: FailureCode
) -> None:
    """Each refusal of a registry has its code; credentials are shown to it, and to nobody else."""
    config = tmp_path / "config.json"
    login = base64.b64encode(b"robot:hidden-password").decode()
    config.write_text(json.dumps({"auths": {registry.address: {"auth": login}}}))
    patience = timedelta(seconds=0.5 if repository.startswith("slow") else 30)
    settings = evolve(SETTINGS, registry_config=str(config), pull_timeout=patience)
    bench = DockerBench(daemon, settings)
    name = bench.new_id()
    spec = container(image=f"{registry.address}/{repository}:1")
    with pytest.raises(RuntimeFailedError) as raised:
        await bench.runtime.create(order_of(name, spec))
    await bench.aclose()
    assert raised.value.code is code
    assert repository in str(raised.value)
    assert f"Basic {login}" in registry.shown
    assert "hidden" not in str(raised.value)
    assert login not in str(raised.value)


@pytest.mark.asyncio
async def test_a_pull_without_credentials(docker: DockerBench, registry: Registry) -> None:
    """A registry that wants to know who asks is told from one that lacks the image."""
    spec = container(image=f"{registry.address}/missing/app:1")
    with pytest.raises(RuntimeFailedError) as raised:
        await docker.runtime.create(order_of(docker.new_id(), spec))
    assert raised.value.code is FailureCode.IMAGE_PULL_AUTH_FAILED


@pytest.mark.asyncio
async def test_pull_policies(docker: DockerBench) -> None:
    """``never`` asks nobody, ``always`` asks even for what is there, another word is refused."""
    name, key = docker.new_id(), "persys.agent.pull_policy"
    never = container(image=MISSING_IMAGE, metadata={key: "never"})
    with pytest.raises(RuntimeFailedError, match="is not on this host") as raised:
        await docker.runtime.create(order_of(name, never))
    assert raised.value.code is FailureCode.IMAGE_NOT_FOUND
    always = container(image="127.0.0.1:1/local:1", metadata={key: "always"})
    with pytest.raises(RuntimeFailedError, match="cannot be pulled"):
        await docker.runtime.create(order_of(name, always))
    with pytest.raises(RuntimeFailedError, match="is not one of") as raised:
        await docker.runtime.create(order_of(name, container(metadata={key: "often"})))
    assert raised.value.code is FailureCode.INVALID_SPEC
    assert await docker.leftovers(name) == []


@pytest.mark.asyncio
async def test_last_lines_are_the_reason(docker: DockerBench) -> None:
    """A failed container's last lines are told, bounded and without its secrets (defect 23)."""
    name = docker.new_id()
    script = 'for i in $(seq 99); do echo "line $i" >&2; done; echo "no $DB_PASSWORD" >&2; exit 3'
    body = ContainerSpec(IMAGE, ("sh", "-c", script), env={"DB_PASSWORD": "hunter22"})
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container(body=body)))
        ended = await until_state(docker.runtime, name, AgentState.FAILED)
        assert ended.message == "exited with code 3: no ***"
        lines = ended.metadata["container.stderr"].splitlines()
        assert lines[0] == "line 51"
        assert lines[-1] == "no ***"
        assert ended.metadata["container.exit_code"] == "3"


@pytest.mark.asyncio
async def test_a_crash_loop_is_seen(docker: DockerBench) -> None:
    """What the Engine restarts itself is pending, with restarts counted and the last end."""
    name = docker.new_id()
    body = ContainerSpec(
        IMAGE, ("sh", "-c", "echo why; exit 3"), restart_policy=RestartPolicy.ALWAYS
    )
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container(body=body)))
        seen = await until(
            docker.runtime, name, lambda it: it.restarts > 0 and it.state is AgentState.PENDING
        )
        told = r"restarted (once|\d+ times) in 10 min, last exit 3: why"
        assert re.fullmatch(told, seen.message), seen.message
        assert seen.exit_code == 3
        assert "why" in seen.metadata["container.stderr"]
        await docker.runtime.stop(name, GRACE)
        await until(docker.runtime, name, lambda it: it.state is not AgentState.PENDING)


@pytest.mark.asyncio
async def test_a_program_that_is_not_there_is_an_invalid_spec(docker: DockerBench) -> None:
    """A start that can never work is told as such, and stays visible afterwards."""
    name = docker.new_id()
    async with removing(docker.runtime, name):
        await docker.runtime.create(
            order_of(name, container(body=ContainerSpec(IMAGE, ("no-such-program",))))
        )
        with pytest.raises(RuntimeFailedError) as raised:
            await docker.runtime.start(name)
        assert raised.value.code is FailureCode.INVALID_SPEC
        left = await until_state(docker.runtime, name, AgentState.FAILED)
        assert "no-such-program" in left.message


@pytest.mark.asyncio
async def test_what_the_reference_agent_left_is_taken_over(docker: DockerBench) -> None:
    """A container without a node's mark is adopted by its workload, by revision, and by nobody
    else; it is listed from then on."""
    name = docker.new_id()
    labels = {"persys.managed": "true", "persys.workload_id": name, "persys.revision_id": "rev-1"}
    config = {"Image": IMAGE, "Cmd": list(SLEEP), "Labels": labels}
    async with removing(docker.runtime, name):
        container_id = await docker.engine.create(name, config)
        assert name not in {each.workload_id for each in await docker.runtime.instances()}
        order = order_of(name, container(), "rev-1")
        assert await docker.runtime.create(order) is Creation.ADOPTED
        listed = {each.workload_id: each for each in await docker.runtime.instances()}
        assert listed[name].metadata["container.id"] == container_id[:12]
        assert await docker.runtime.create(order_of(name, container(), "2")) is Creation.REPLACED


@pytest.mark.asyncio
async def test_creations_at_once_make_one(docker: DockerBench) -> None:
    """A call that finds the name taken meanwhile, by a call of ours, takes what is there."""
    name = docker.new_id()
    async with removing(docker.runtime, name):
        calls = [docker.runtime.create(order_of(name, container())) for _ in range(3)]
        made = await asyncio.gather(*calls)
        assert sorted(made) == [Creation.ADOPTED, Creation.ADOPTED, Creation.CREATED]


@pytest.mark.asyncio
async def test_a_hung_daemon_is_silent(docker: DockerBench, daemon: Dockerd) -> None:
    """A daemon that takes questions and answers none is not waited for without end."""
    impatient = DockerBench(daemon, evolve(SETTINGS, call_timeout=timedelta(milliseconds=300)))
    name = docker.new_id()
    daemon.freeze()
    try:
        with pytest.raises(RuntimeUnavailableError):
            await impatient.runtime.inspect(name)
    finally:
        daemon.thaw()
    assert await impatient.runtime.inspect(name) is None
    await impatient.aclose()


@pytest.mark.parametrize("hangs", ["before it is asked", "before it begins"])
@pytest.mark.asyncio
async def test_a_hung_daemon_begins_no_command(
    docker: DockerBench, daemon: Dockerd, hangs: str
) -> None:
    """A command that a daemon does not begin ends with a word for people, wherever the daemon is
    stuck; one that runs has all the time it wants."""
    name, within = docker.new_id(), timedelta(milliseconds=300)

    class Hanging(Engine):
        async def prepare_exec(self, container_id: str, command: Sequence[str], tty: bool) -> Exec:
            prepared = await super().prepare_exec(container_id, command, tty)
            daemon.freeze()
            return prepared

    engine = Hanging(daemon.endpoint) if hangs == "before it begins" else docker.engine
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container()))
        shown = await docker.engine.named(name)
        assert shown is not None

        async def find() -> Target:
            if engine is docker.engine:
                daemon.freeze()
                await docker.engine.named(name)
            return target_of(shown, name)

        try:
            running = run_inside(engine, find, ["true"], given(), tty=False, starts_within=within)
            with pytest.raises(RuntimeUnavailableError, match=r"did not begin .* within 0\.3 s"):
                await anext(running)
        finally:
            daemon.thaw()
        impatient = DockerBench(daemon, evolve(SETTINGS, exec_starts_within=timedelta(seconds=1)))
        told = impatient.interactive.execute(name, ["sh", "-c", "sleep 1.5; echo done"], given())
        assert [each async for each in told] == [ExecOutput(b"done\n", "stdout"), ExecExit(0)]
        await impatient.aclose()
    if engine is not docker.engine:
        await engine.aclose()


@pytest.mark.asyncio
async def test_a_command_in_what_does_not_run_names_the_workload(docker: DockerBench) -> None:
    """A person reads which workload it is and that it does not run, and no id of 64 digits."""
    name = docker.new_id()
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container("exit 0")))
        await until_state(docker.runtime, name, AgentState.STOPPED)
        with pytest.raises(RuntimeFailedError) as caught:
            await anext(docker.interactive.execute(name, ["true"], given()))
    assert str(caught.value) == (
        f'workload "{name}" is not running (its container: ended with code 0), so no command can be'
        " run in it"
    )


@pytest.mark.asyncio
async def test_paused_is_stopped(docker: DockerBench, daemon: Dockerd) -> None:
    """Whoever paused a container finds it stopped; ``start`` lets it go on as it was."""
    name = docker.new_id()
    async with removing(docker.runtime, name):
        await run(docker, order_of(name, container()))
        before = await until_state(docker.runtime, name, AgentState.RUNNING)
        assert daemon.request("POST", f"/containers/{name}/pause")[0] == 204
        paused = await until_state(docker.runtime, name, AgentState.STOPPED)
        assert (paused.message, paused.exit_code) == ("paused", None)
        await docker.runtime.start(name)
        after = await until_state(docker.runtime, name, AgentState.RUNNING)
        assert after.started_at == before.started_at


@pytest.mark.asyncio
async def test_health_is_told(docker: DockerBench) -> None:
    """Until its check passes a container is pending; when it fails, it runs and is unhealthy."""
    name, key = docker.new_id(), "persys.agent.health."
    check = {
        f"{key}command": "echo looked; test -f /tmp/ok",
        f"{key}interval": "0.2",
        f"{key}retries": "2",
        f"{key}start_period": "60",
    }
    async with removing(docker.runtime, name):
        spec = container(
            "sleep 0.6; touch /tmp/ok; sleep 0.6; rm /tmp/ok; sleep 99", metadata=check
        )
        await run(docker, order_of(name, spec))
        pending = await until_state(docker.runtime, name, AgentState.PENDING)
        assert pending.metadata["container.health"] == "starting"
        await until_state(docker.runtime, name, AgentState.RUNNING)
        sick = await until(docker.runtime, name, lambda it: "unhealthy" in it.message)
        assert sick.state is AgentState.RUNNING
        assert sick.message == "unhealthy: looked"


@pytest.mark.asyncio
async def test_restarts_are_told(docker: DockerBench, daemon: Dockerd) -> None:
    """A container that its policy starts again and again says how often, whether it runs at this
    moment or not, and how it ended last, also where no look found it between two runs."""
    name, other = docker.new_id(), docker.new_id()

    def always(script: str) -> ContainerSpec:
        return ContainerSpec(IMAGE, ("sh", "-c", script), restart_policy=RestartPolicy.ALWAYS)

    async with removing(docker.runtime, name), removing(docker.runtime, other):
        loop = container(body=always("echo no such table >&2; exit 3"))
        await run(docker, order_of(name, loop))
        said = re.compile(r"restarted (once|\d+ times) in 10 min, last exit 3: no such table")
        found = await until(docker.runtime, name, lambda it: said.fullmatch(it.message) is not None)
        assert found.restarts >= 1

        once = (
            "test -f /ended && echo new && exec sleep 600; touch /ended; sleep 1; echo late; exit 7"
        )
        await run(docker, order_of(other, container(body=always(once))))
        assert (await until_state(docker.runtime, other, AgentState.RUNNING)).message == "running"

        def runs_again() -> bool:  # asked of the daemon itself, so that no look of ours sees it end
            shown = daemon.containers()[other]
            return bool(shown["RestartCount"] == 1 and shown["State"]["Running"])

        await eventually(runs_again, "it is started again")
        again = await docker.runtime.inspect(other)
        assert again is not None
        assert again.message == "restarted once in 10 min, last exit 7: late"


@pytest.mark.asyncio
async def test_volumes_are_mounted(docker: DockerBench, tmp_path: Path) -> None:
    """Host paths and managed volumes are where the spec says, and read-only where it says so."""
    name, shared, managed = docker.new_id(), tmp_path / "shared", tmp_path / "managed"
    for each in (shared, managed):
        each.mkdir()
    volume = ManagedVolume("data", mount_path="/data")
    script = "echo kept > /data/file; echo x > /shared/file || echo refused > /data/second"
    body = ContainerSpec(
        IMAGE,
        ("sh", "-c", script),
        volumes=(VolumeMount(str(shared), "/shared", read_only=True),),
        managed_volumes=(volume,),
    )
    order = evolve(
        order_of(name, container(body=body)), volumes=(AttachedVolume(volume, str(managed)),)
    )
    async with removing(docker.runtime, name):
        await run(docker, order)
        await until(docker.runtime, name, lambda it: it.exit_code == 0)
    assert (managed / "file").read_text() == "kept\n"
    assert (managed / "second").read_text() == "refused\n"
    assert list(shared.iterdir()) == []


@pytest.mark.asyncio
async def test_a_missing_host_path_is_no_empty_folder(docker: DockerBench, tmp_path: Path) -> None:
    """A source that is not there fails the create under the volumes' code, and is not made."""
    name, absent = docker.new_id(), tmp_path / "absent"
    body = ContainerSpec(IMAGE, SLEEP, volumes=(VolumeMount(str(absent), "/x"),))
    with pytest.raises(RuntimeFailedError) as raised:
        await docker.runtime.create(order_of(name, container(body=body)))
    assert raised.value.code is FailureCode.VOLUME_FAILED
    assert not absent.exists()
    assert await docker.leftovers(name) == []


@pytest.mark.asyncio
async def test_volumes_of_the_image_outlive_a_revision(docker: DockerBench) -> None:
    """What the image keeps in a volume is there for the next revision, and gone with the data."""
    name = docker.new_id()
    write = ContainerSpec(WITH_VOLUME, ("sh", "-c", "echo kept > /data/file"))
    read = ContainerSpec(WITH_VOLUME, ("sh", "-c", "grep kept /data/file"))
    await run(docker, order_of(name, container(body=write)))
    await until(docker.runtime, name, lambda it: it.exit_code == 0)
    assert await docker.runtime.create(order_of(name, container(body=read))) is Creation.REPLACED
    await docker.runtime.start(name)
    await until(docker.runtime, name, lambda it: it.exit_code == 0)
    assert await docker.engine.volumes({}) != []
    await docker.runtime.remove(name, with_data=True)
    assert await docker.engine.volumes({}) == []


@pytest.mark.asyncio
async def test_a_restarted_daemon_is_found_again(docker: DockerBench, daemon: Dockerd) -> None:
    """While dockerd is away nothing is known; afterwards all instances are, without a new agent."""
    name, kept = docker.new_id(), docker.new_id()
    always = ContainerSpec(IMAGE, SLEEP, restart_policy=RestartPolicy.ALWAYS)
    async with removing(docker.runtime, name, kept):
        await run(docker, order_of(name, container()))
        await run(docker, order_of(kept, container(body=always)))
        daemon.stop()
        with pytest.raises(RuntimeUnavailableError):
            await docker.runtime.instances()
        assert not (await docker.runtime.probe()).is_available
        daemon.start()
        found = {each.workload_id: each for each in await docker.runtime.instances()}
        assert {name, kept} <= set(found)
        assert found[name].state in {AgentState.STOPPED, AgentState.FAILED}
        await until_state(docker.runtime, kept, AgentState.RUNNING)
        await docker.runtime.start(name)
        await until_state(docker.runtime, name, AgentState.RUNNING)


@pytest.mark.asyncio
async def test_agents_with_their_node_in_the_name_share_a_daemon(daemon: Dockerd) -> None:
    """The same workload on two nodes is two containers, and each agent sees its own."""
    bench = DockerBench(daemon, evolve(SETTINGS, names=ContainerNames.NODE))
    order = order_of("named", container())
    try:
        for each in (bench.runtime, bench.neighbour):
            assert await each.create(order) is Creation.CREATED
            await each.start("named")
        await bench.runtime.remove("named")
        assert await bench.runtime.instances() == []
        (left,) = await bench.neighbour.instances()
        assert left.state is AgentState.RUNNING
        assert await bench.engine.show("node-2.named") is not None
    finally:
        await bench.neighbour.remove("named")
        await bench.aclose()


@pytest.mark.asyncio
async def test_a_changed_style_of_names_restarts_nothing(
    daemon: Dockerd, docker: DockerBench
) -> None:
    """What runs is found under the name that it has, and gets the new one when it is replaced."""
    changed = DockerBench(daemon, evolve(SETTINGS, names=ContainerNames.NODE))
    order = order_of("renamed", container())
    async with removing(docker.runtime, "renamed"):
        await run(docker, order)
        assert await changed.runtime.create(order) is Creation.ADOPTED
        assert [each.state for each in await changed.runtime.instances()] == [AgentState.RUNNING]
        newer = evolve(order, revision_id="r2")
        assert await changed.runtime.create(newer) is Creation.REPLACED
        assert await docker.engine.show("renamed") is None
        found = await docker.runtime.inspect("renamed")
        assert found is not None
        assert found.revision_id == "r2"
    await changed.aclose()


@pytest.mark.asyncio
async def test_a_name_that_begins_another_containers_id_is_a_name(docker: DockerBench) -> None:
    """The Engine takes the beginning of an id for a name; a workload called so is not that."""
    async with removing(docker.runtime, "other"):
        await docker.runtime.create(order_of("other", container()))
        shown = await docker.engine.show("other")
        assert shown is not None
        name = str(shown["Id"])[:12]
        assert await docker.runtime.inspect(name) is None
        async with removing(docker.runtime, name):
            order = order_of(name, container())
            assert await docker.runtime.create(order) is Creation.CREATED
