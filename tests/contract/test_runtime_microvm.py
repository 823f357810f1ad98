"""The suite of the Runtime port on a stand-in of Firecracker, and what microVMs add to it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define, evolve, field

from persys_agent.runtimes.microvm.process import ProcessId
from persys_agent.runtimes.microvm.records import folder_of
from persys_agent.runtimes.microvm.runtime import FirecrackerRuntime
from persys_agent.runtimes.microvm.settings import MicroVmSettings
from persys_agent.runtimes.port import (
    AttachedVolume,
    Owner,
    Runtime,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.testing.runtime import RuntimeBench, RuntimeSuite
from persys_agent.testing.runtime_bench import closing, order_of, removing
from persys_core.model.ids import WorkloadId
from persys_core.model.observation import AgentState
from persys_core.model.resources import Resources
from persys_core.model.spec import (
    CloudInit,
    DiskSpec,
    ManagedVolume,
    NetworkSpec,
    VmSpec,
    WorkloadSpec,
)
from persys_core.model.states import WorkloadType
from tests.servers.firecracker import install

GUESTS = ("lasting", "deaf", "ending 0", "ending 3")


def micro(body: VmSpec) -> WorkloadSpec:
    return WorkloadSpec(WorkloadType.MICROVM, Resources.of(memory_mb=128), body)


def machine(image: str) -> WorkloadSpec:
    return micro(VmSpec(1, 128, os_image=image))


@define(eq=False)
class FirecrackerBench(RuntimeBench):
    folder: Path
    runtime: Runtime = field(init=False)
    neighbour: Runtime = field(init=False)
    _handed_out: list[FirecrackerRuntime] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        images = self.folder / "images"
        images.mkdir()
        (images / "vmlinux").write_bytes(b"a kernel")
        for guest in GUESTS:
            (images / f"{guest.replace(' ', '-')}.img").write_text(guest + "\n")
        install(self.folder)
        self.runtime, self.neighbour = self.new("n1"), self.new("n2")

    def new(
        self,
        node: str,
        binary: str = "firecracker",
        call_timeout: timedelta = timedelta(seconds=5),
    ) -> FirecrackerRuntime:
        settings = MicroVmSettings(
            binary=self.folder / binary,
            images_root=self.folder / "images",
            state_dir=self.folder / "state",
            replace_grace=timedelta(seconds=1),
            call_timeout=call_timeout,
        )
        made = FirecrackerRuntime(Owner(node, "c1"), settings, kvm=Path("/dev/null"))
        self._handed_out.append(made)
        return made

    def lasting(self) -> WorkloadSpec:
        return machine("lasting")

    def stubborn(self) -> WorkloadSpec:
        return machine("deaf")

    def ending(self, code: int) -> WorkloadSpec:
        return machine(f"ending-{code}")

    def missing(self) -> WorkloadSpec:
        return machine("nowhere")

    async def again(self) -> Runtime:
        return self.new("n1")

    async def unreachable(self) -> Runtime:
        return self.new("n1", "nothing")

    async def leftovers(self, workload_id: WorkloadId) -> Sequence[str]:
        return [str(path) for path in (self.folder / "state").rglob("*")]

    async def aclose(self) -> None:
        for each in self._handed_out:
            await each.aclose()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a unix socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="fc-"))
    yield folder
    shutil.rmtree(folder)


class TestFirecrackerRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, short_folder: Path) -> RuntimeBench:
        return FirecrackerBench(short_folder)


async def texts(runtime: FirecrackerRuntime, name: str, *, follow: bool = False) -> list[str]:
    return [line.text async for line in runtime.logs(name, tail=100, follow=follow)]


def calls(bench: FirecrackerBench, name: str) -> list[str]:
    """The calls that the stand-in answered, as ``status METHOD path``."""
    log = folder_of(bench.folder / "state", name).path / "calls.log"
    return [line.split(" {", 1)[0] for line in log.read_text().splitlines()]


async def nothing() -> AsyncIterator[bytes]:
    """An input that is at its end."""
    parts: tuple[bytes, ...] = ()
    for part in parts:
        yield part


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_machine_is_configured_as_documented(short_folder: Path) -> None:
    """Every call is one that Firecracker's API takes, all before the start, with the seed on a
    disk of its own, and the console is what logs are."""
    bench = FirecrackerBench(short_folder)
    body = VmSpec(
        2,
        256,
        os_image="ending-0",
        cloud_init=CloudInit(user_data="#!/bin/sh\n# marker-one\n"),
        disks=(DiskSpec(size_gb=1),),
        networks=(NetworkSpec(host_dev_name="tap7"),),
        metadata={"persys.agent.cmdline": "console=ttyS0 words"},
    )
    runtime = bench.new("n1")
    async with closing(bench), removing(runtime, "full"):
        await runtime.create(order_of("full", micro(body)))
        await runtime.start("full")
        assert await texts(runtime, "full", follow=True) == [
            "guest: booted with console=ttyS0 words",
            "user-data: marker-one",
            "guest: ends",
        ]
        assert calls(bench, "full") == [
            "204 PUT /logger",
            "204 PUT /machine-config",
            "204 PUT /boot-source",
            "204 PUT /drives/rootfs",
            "204 PUT /drives/disk0",
            "204 PUT /drives/cidata",
            "204 PUT /network-interfaces/eth0",
            "204 PUT /actions",
        ]
        instance = await runtime.inspect("full")
        assert instance is not None
        assert "vm.cloud_init_seed_checksum" in instance.metadata


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_guest_is_asked_before_it_is_ended(short_folder: Path) -> None:
    """Ctrl-Alt-Del ends a guest that hears it at once; one that does not is ended by force, and
    both have stopped, not failed."""
    bench = FirecrackerBench(short_folder)
    runtime = bench.new("n1")
    async with closing(bench), removing(runtime, "hears", "deaf"):
        for name, image, grace in (("hears", "lasting", 60.0), ("deaf", "deaf", 0.2)):
            await runtime.create(order_of(name, machine(image)))
            await runtime.start(name)
            async with asyncio.timeout(10):
                await runtime.stop(name, timedelta(seconds=grace))
            instance = await runtime.inspect(name)
            assert instance is not None
            assert (instance.state, instance.exit_code) == (AgentState.STOPPED, 0)
            assert instance.finished_at is not None


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_machine_outlives_the_loop_that_started_it(short_folder: Path) -> None:
    """A microVM is no child that dies with the agent's event loop; its folder is for its agent
    alone."""
    bench = FirecrackerBench(short_folder)
    runtime, name = bench.new("n1"), "outlives"

    async def start() -> None:
        first = bench.new("n1")
        await first.create(order_of(name, machine("lasting")))
        await first.start(name)
        await first.aclose()

    async with closing(bench), removing(runtime, name):
        await asyncio.to_thread(lambda: asyncio.run(start()))
        instance = await runtime.inspect(name)
        assert instance is not None
        assert instance.state is AgentState.RUNNING
        folder = folder_of(bench.folder / "state", name)
        assert folder.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_pid_that_is_anothers_now_is_left_alone(short_folder: Path) -> None:
    """A process with the pid of a machine that ended is neither taken for it nor ended."""
    bench = FirecrackerBench(short_folder)
    runtime, name = bench.new("n1"), "reused"
    async with closing(bench), removing(runtime, name):
        await runtime.create(order_of(name, machine("lasting")))
        folder = folder_of(bench.folder / "state", name)
        record = folder.read()
        assert record is not None
        other = await asyncio.create_subprocess_exec("sleep", "600")
        try:
            folder.write(evolve(record, process=ProcessId(os.getpid(), started=1)))
            instance = await runtime.inspect(name)
            assert instance is not None
            assert instance.state is AgentState.STOPPED
            folder.write(evolve(record, process=ProcessId(other.pid, started=1)))
            await runtime.remove(name)
            assert os.path.exists(f"/proc/{other.pid}")  # noqa: ASYNC240  # in memory
        finally:
            other.kill()
            await other.wait()


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_silent_machine_hides_no_other(short_folder: Path) -> None:
    """A Firecracker that hangs is *Unknown* in the list and no answer when asked for; the others
    are seen; and it can be removed."""
    bench = FirecrackerBench(short_folder)
    runtime = bench.new("n1", call_timeout=timedelta(seconds=0.5))
    async with closing(bench), removing(runtime, "hangs", "well"):
        for name in ("hangs", "well"):
            await runtime.create(order_of(name, machine("lasting")))
            await runtime.start(name)
        record = folder_of(bench.folder / "state", "hangs").read()
        assert record is not None
        assert record.process is not None
        os.kill(record.process.pid, signal.SIGSTOP)
        states = {each.workload_id: each.state for each in await runtime.instances()}
        assert states == {"hangs": AgentState.UNKNOWN, "well": AgentState.RUNNING}
        with pytest.raises(RuntimeUnavailableError):
            await runtime.inspect("hangs")


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_refused_start_leaves_no_process(short_folder: Path) -> None:
    """What Firecracker refuses is told in its words, and the process is ended."""
    bench = FirecrackerBench(short_folder)
    runtime, name = bench.new("n1"), "refused"
    async with closing(bench), removing(runtime, name):
        await runtime.create(order_of(name, machine("lasting")))
        (bench.folder / "images/vmlinux").unlink()
        with pytest.raises(RuntimeFailedError, match="PUT /boot-source: No such file"):
            await runtime.start(name)
        instance = await runtime.inspect(name)
        assert instance is not None
        assert instance.state is AgentState.STOPPED
        record = folder_of(bench.folder / "state", name).read()
        assert record is not None
        assert record.process is None


@pytest.mark.slow
@pytest.mark.asyncio
async def test_volumes_survive_their_machine(short_folder: Path) -> None:
    """A managed volume that is a folder becomes a file in it, which removal leaves (defect 36)."""
    bench = FirecrackerBench(short_folder)
    runtime, volume = bench.new("n1"), short_folder / "volume"
    volume.mkdir()
    attached = AttachedVolume(ManagedVolume("data", size_gb=1), path=str(volume))
    order = evolve(order_of("keeps", machine("lasting")), volumes=(attached,))
    async with closing(bench):
        await runtime.create(order)
        (volume / "disk.raw").write_bytes(b"data")
        await runtime.start("keeps")
        await runtime.remove("keeps", with_data=True)
        assert (volume / "disk.raw").read_bytes() == b"data"
        assert await bench.leftovers("keeps") == []


@pytest.mark.slow
@pytest.mark.asyncio
async def test_usage_is_of_the_process(short_folder: Path) -> None:
    """Memory and CPU of a running machine come from its process, from the second look on."""
    bench = FirecrackerBench(short_folder)
    runtime, name = bench.new("n1"), "used"
    async with closing(bench), removing(runtime, name):
        await runtime.create(order_of(name, machine("lasting")))
        assert await runtime.usage() == {}
        await runtime.start(name)
        assert await runtime.usage() == {}
        used = (await runtime.usage())[name]
        assert used.memory_bytes > 1_000_000
        assert used.source == "firecracker.proc"


@pytest.mark.asyncio
async def test_commands_are_refused_with_a_reason(short_folder: Path) -> None:
    """A verb that Firecracker has not is an answer, not a crash; so are logs of what is not."""
    bench = FirecrackerBench(short_folder)
    runtime = bench.new("n1")
    async with closing(bench):
        with pytest.raises(RuntimeFailedError, match="runs no commands"):
            await anext(runtime.execute("w", ["true"], nothing()))
        with pytest.raises(RuntimeFailedError, match="no microVM w"):
            await texts(runtime, "w")


@pytest.mark.asyncio
async def test_kvm_is_needed(short_folder: Path) -> None:
    """Without /dev/kvm there are no microVMs, and the capability says what is missing."""
    bench = FirecrackerBench(short_folder)
    settings = bench.new("n1").settings
    runtime = FirecrackerRuntime(Owner("n1"), settings, kvm=short_folder / "no-kvm")
    async with closing(bench):
        capability = await runtime.probe()
        assert not capability.is_available
        assert "no-kvm" in capability.detail
