"""The suite of the Runtime port on a real libvirtd and QEMU (emulation; guests of one sector)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from attrs import define, evolve, field

from persys_agent.runtimes.machine.images import Marker, marker_of
from persys_agent.runtimes.port import (
    AttachedVolume,
    Creation,
    FailureCode,
    Owner,
    Runtime,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.runtimes.vm.accelerator import kvm_works
from persys_agent.runtimes.vm.binding import Connection, load_libvirt
from persys_agent.runtimes.vm.folders import owner_folder
from persys_agent.runtimes.vm.runtime import LibvirtRuntime
from persys_agent.runtimes.vm.settings import Accelerator, VmSettings
from persys_agent.testing.runtime import RuntimeBench, RuntimeSuite
from persys_agent.testing.runtime_bench import (
    PATIENCE_SECONDS,
    closing,
    order_of,
    removing,
    until_state,
)
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
from tests.servers.guests import BUSY, IDLE, POWER_OFF, boot_sector, initramfs, kernel
from tests.servers.libvirtd import Libvirtd, libvirtd

MEMORY_MB = 32
DEBIAN_MEMORY_MB = 192
NETWORK = """\
<network><name>persys</name><bridge name='virbr7' stp='off' delay='0'/>
<ip address='192.0.2.1' netmask='255.255.255.0'><dhcp><range start='192.0.2.10' end='192.0.2.99'/>
</dhcp></ip></network>
"""


def machine(
    image: str,
    memory_mb: int = MEMORY_MB,
    disks: tuple[DiskSpec, ...] = (),
    networks: tuple[NetworkSpec, ...] = (),
) -> WorkloadSpec:
    body = VmSpec(1, memory_mb, disks, networks, os_image=image)
    resources = Resources.of(cpu_millicores=1000, memory_mb=memory_mb)
    return WorkloadSpec(WorkloadType.VM, resources, body)


def debian(network: str) -> WorkloadSpec:
    body = VmSpec(
        1,
        DEBIAN_MEMORY_MB,
        networks=(NetworkSpec(network=network),),
        cloud_init=CloudInit(user_data="marker-of-the-seed\n"),
        metadata={
            "persys.agent.kernel": "vmlinuz",
            "persys.agent.initrd": "initrd.gz",
            "persys.agent.cmdline": "console=ttyS0 quiet panic=-1",
        },
    )
    return WorkloadSpec(WorkloadType.VM, Resources.of(memory_mb=DEBIAN_MEMORY_MB), body)


def connection(uri: str) -> Connection:
    """A connection of the test's own."""
    return load_libvirt().open(uri)


def isolated_network(uri: str) -> str:
    """Make a network with DHCP on that libvirtd (in its own network namespace)."""
    opened = cast("Any", connection(uri))  # what tests alone use has no types
    opened.networkDefineXML(NETWORK).create()
    return "persys"


@pytest.fixture(scope="module")
def server() -> Iterator[Libvirtd]:
    with tempfile.TemporaryDirectory(prefix="lv-") as folder, libvirtd(Path(folder)) as running:
        yield running


@define(eq=False)
class LibvirtBench(RuntimeBench):
    server: Libvirtd
    folder: Path
    has_exit_codes: bool = field(default=False, init=False)
    _handed_out: list[LibvirtRuntime] = field(factory=list, init=False)
    runtime: Runtime = field(init=False)
    neighbour: Runtime = field(init=False)

    def __attrs_post_init__(self) -> None:
        (self.folder / "images").mkdir(exist_ok=True)
        (self.folder / "images/idle.img").write_bytes(boot_sector(IDLE))
        (self.folder / "images/off.img").write_bytes(boot_sector(POWER_OFF))
        (self.folder / "images/busy.img").write_bytes(boot_sector(BUSY))
        self.runtime, self.neighbour = self.new("n1"), self.new("n2")

    def new(
        self,
        node: str,
        uri: str = "",
        call_timeout: timedelta = timedelta(seconds=60),
        accelerator: Accelerator = Accelerator.QEMU,
    ) -> LibvirtRuntime:
        settings = VmSettings(
            images_root=self.folder / "images",
            state_dir=self.folder / "state",
            disk_roots=(self.folder / "disks",),
            accelerator=accelerator,
            replace_grace=timedelta(0),
            call_timeout=call_timeout,
        )
        made = LibvirtRuntime(uri or self.server.uri, Owner(node, "c1"), settings)
        self._handed_out.append(made)
        return made

    def lasting(self) -> WorkloadSpec:
        return machine("idle")

    def ending(self, code: int) -> WorkloadSpec:
        return machine("off")

    def missing(self) -> WorkloadSpec:
        return machine("nowhere")

    async def again(self) -> Runtime:
        return self.new("n1")

    async def unreachable(self) -> Runtime:
        return self.new("n1", f"qemu+unix:///system?socket={self.folder}/nothing")

    async def leftovers(self, workload_id: WorkloadId) -> Sequence[str]:
        where = (owner_folder(self.folder / "state", Owner("n1", "c1")), self.server.folder)
        found = [str(path) for root in where for path in root.rglob(f"*{workload_id}*")]
        return [each for each in found if not each.endswith(".log")]

    async def aclose(self) -> None:
        for each in self._handed_out:
            await each.aclose()


async def texts(runtime: LibvirtRuntime, name: str, *, follow: bool = False) -> list[str]:
    return [line.text async for line in runtime.logs(name, tail=100, follow=follow)]


async def nothing() -> AsyncIterator[bytes]:
    """An input that is at its end."""
    parts: tuple[bytes, ...] = ()
    for part in parts:
        yield part


@pytest.mark.asyncio
class TestLibvirtRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, server: Libvirtd, tmp_path: Path) -> RuntimeBench:
        return LibvirtBench(server, tmp_path)

    @pytest.fixture
    def vms(self, server: Libvirtd, tmp_path: Path) -> LibvirtBench:
        return LibvirtBench(server, tmp_path)

    async def test_a_guest_reads_its_seed(self, vms: LibvirtBench) -> None:
        """Debian's kernel finds its cloud-init seed and its address; its console tells; it runs,
        hears its power button, and leaves nothing when it is removed (issue 6)."""
        runtime = vms.new("n1")
        images = vms.folder / "images"
        await asyncio.to_thread(shutil.copy, kernel(), images / "vmlinuz")
        await asyncio.to_thread(initramfs, images / "initrd.gz")
        network = await asyncio.to_thread(isolated_network, vms.server.uri)
        async with closing(vms), removing(runtime, "debian"):
            await runtime.create(order_of("debian", debian(network)))
            await runtime.start("debian")
            async with asyncio.timeout(PATIENCE_SECONDS):
                lines = []
                async for line in runtime.logs("debian", tail=100, follow=True):
                    lines.append(line.text)
                    if line.text == "guest: ready":
                        break
            assert "user-data: marker-of-the-seed" in lines
            assert 'meta-data: "instance-id": "debian",' in lines
            instance = await until_state(runtime, "debian", AgentState.RUNNING)
            assert instance.message == "running (reason=booted)"
            assert instance.metadata["vm.primary_ip"].startswith("192.0.2.")
            assert instance.metadata["vm.cloud_init_seed_checksum"]
            await runtime.usage()
            await runtime.stop("debian", timedelta(seconds=PATIENCE_SECONDS))
            stopped = await until_state(runtime, "debian", AgentState.STOPPED)
            assert stopped.message == "shutdown (reason=shutdown)"
            assert "guest: power button" in await texts(runtime, "debian", follow=True)
            await runtime.remove("debian")
            assert await runtime.inspect("debian") is None
            assert list(await vms.leftovers("debian")) == []

    async def test_a_foreign_domain_is_left_alone(self, vms: LibvirtBench) -> None:
        """A domain without our mark, as operators and the reference agent make them, is refused,
        neither listed nor removed (defect 32)."""
        runtime = vms.new("n1")
        foreign = "<domain type='qemu'><name>theirs</name><memory unit='MiB'>32</memory><os>"
        foreign += "<type>hvm</type></os></domain>"
        domain = await asyncio.to_thread(connection(vms.server.uri).defineXML, foreign)
        try:
            async with closing(vms):
                with pytest.raises(RuntimeFailedError) as raised:
                    await runtime.create(order_of("theirs", vms.lasting()))
                assert raised.value.code is FailureCode.NAME_CONFLICT
                assert await runtime.inspect("theirs") is None
                assert await runtime.instances() == []
                await runtime.remove("theirs")
                assert domain.name() == "theirs"
                assert await asyncio.to_thread(domain.state)
        finally:
            await asyncio.to_thread(domain.undefineFlags, 0)

    async def test_a_restarted_libvirtd_loses_nothing(self, vms: LibvirtBench) -> None:
        """While libvirtd is away nothing is known; when it is back, the same runtime finds its
        machine running, without being told (defects 2 and 32)."""
        runtime = vms.new("n1")
        async with closing(vms), removing(runtime, "stays"):
            await runtime.create(order_of("stays", vms.lasting()))
            await runtime.start("stays")
            pids = vms.server.guest_pids()
            await asyncio.to_thread(vms.server.kill)
            with pytest.raises(RuntimeUnavailableError):
                await runtime.inspect("stays")
            with pytest.raises(RuntimeUnavailableError):
                await runtime.instances()
            await asyncio.to_thread(vms.server.start)
            instance = await runtime.inspect("stays")
            assert instance is not None
            assert instance.state is AgentState.RUNNING
            assert vms.server.guest_pids() == pids

    async def test_kvm_is_used_where_it_works(self, vms: LibvirtBench) -> None:
        """``auto`` takes KVM if, and only if, a guest runs under it; the capability says which."""
        runtime = vms.new("n1", accelerator=Accelerator.AUTO)
        async with closing(vms):
            capability = await runtime.probe()
            works = await kvm_works("/usr/bin/qemu-system-x86_64")
            assert capability.detail.endswith("kvm" if works else "qemu")

    async def test_a_hung_libvirtd_is_no_answer(self, vms: LibvirtBench) -> None:
        """A libvirtd that does not answer is given up in time, does not hold the loop, and is
        asked again by the next call."""
        runtime = vms.new("n1", call_timeout=timedelta(seconds=0.5))
        async with closing(vms):
            await runtime.instances()
            with vms.server.hanging():
                with pytest.raises(RuntimeUnavailableError, match="did not answer"):
                    await runtime.inspect("w")
                assert not (await runtime.probe()).is_available
            assert await runtime.inspect("w") is None

    async def test_a_failed_replacement_keeps_the_data(self, vms: LibvirtBench) -> None:
        """What libvirt refuses to define leaves the older revision and its disks."""
        runtime = vms.new("n1")
        root = owner_folder(vms.folder / "state", Owner("n1", "c1")) / "keeps/root.qcow2"
        async with closing(vms), removing(runtime, "keeps"):
            await runtime.create(order_of("keeps", vms.lasting(), "good"))
            inode = root.stat().st_ino
            bad = machine("idle", networks=(NetworkSpec(network="persys", model="no such model"),))
            with pytest.raises(RuntimeFailedError) as raised:
                await runtime.create(order_of("keeps", bad, "bad"))
            assert raised.value.code is FailureCode.INVALID_SPEC
            left = await runtime.inspect("keeps")
            assert left is not None
            assert left.revision_id == "good"
            assert root.stat().st_ino == inode

    async def test_a_slow_stop_holds_up_nobody(self, vms: LibvirtBench) -> None:
        """While one guest uses up its grace, another is made, started and removed."""
        runtime = vms.new("n1")
        async with closing(vms), removing(runtime, "deaf", "other"):
            await runtime.create(order_of("deaf", vms.lasting()))
            await runtime.start("deaf")
            stopping = asyncio.create_task(runtime.stop("deaf", timedelta(minutes=5)))
            await runtime.create(order_of("other", vms.lasting()))
            await runtime.start("other")
            await runtime.remove("other")
            assert not stopping.done()
            stopping.cancel()
            await asyncio.wait([stopping])

    async def test_disks_survive_a_revision(self, vms: LibvirtBench) -> None:
        """A revision with more memory has the same disks as before; one with another image a new
        root disk; and a disk that was there before is never deleted."""
        runtime, data = vms.new("n1"), vms.folder / "disks"
        data.mkdir()
        given = data / "given.qcow2"
        given.write_bytes(b"made by somebody")
        root = owner_folder(vms.folder / "state", Owner("n1", "c1")) / "keeps/root.qcow2"
        extra = (DiskSpec(path=str(data / "new.qcow2"), size_gb=1), DiskSpec(path=str(given)))
        async with closing(vms), removing(runtime, "keeps"):
            first = machine("idle", disks=extra)
            await runtime.create(order_of("keeps", first))
            before = [file.stat().st_ino for file in (root, data / "new.qcow2")]
            more = machine("idle", disks=extra, memory_mb=48)
            assert await runtime.create(order_of("keeps", more)) is Creation.REPLACED
            assert [file.stat().st_ino for file in (root, data / "new.qcow2")] == before
            await runtime.create(order_of("keeps", machine("off", disks=extra[1:])))
            assert marker_of(root) == Marker("keeps", str(vms.folder / "images/off.img"))
            assert sorted(file.name for file in data.iterdir()) == ["given.qcow2"]
            await runtime.remove("keeps", with_data=True)
            assert given.read_bytes() == b"made by somebody"

    async def test_a_volume_is_a_disk_that_stays(self, vms: LibvirtBench) -> None:
        """A managed volume that is a folder becomes a file in it, never the folder itself as a
        disk (defect 36), and outlives the machine."""
        runtime, volume = vms.new("n1"), vms.folder / "volume"
        volume.mkdir()
        attached = AttachedVolume(ManagedVolume("data", size_gb=1), path=str(volume))
        order = evolve(order_of("keeps", vms.lasting()), volumes=(attached,))
        async with closing(vms), removing(runtime, "keeps"):
            await runtime.create(order)
            await runtime.start("keeps")
            await runtime.remove("keeps", with_data=True)
            assert [file.name for file in volume.iterdir()] == ["disk.raw"]
            assert (volume / "disk.raw").stat().st_size == 1024**3

    async def test_usage_is_between_two_looks(self, vms: LibvirtBench) -> None:
        """CPU is that of the time since the last call (defect 34), of running machines alone."""
        runtime = vms.new("n1")
        async with closing(vms), removing(runtime, "busy", "idle"):
            await runtime.create(order_of("busy", machine("busy")))
            await runtime.create(order_of("idle", vms.lasting()))
            await runtime.start("busy")
            await runtime.usage()
            await asyncio.sleep(0.7)
            used = await runtime.usage()
            assert set(used) == {"busy"}
            assert used["busy"].cpu_percent > 10
            assert used["busy"].memory_bytes > MEMORY_MB * 1024
            assert used["busy"].source == "libvirt.domain_stats"

    async def test_a_missing_network_is_explained(self, vms: LibvirtBench) -> None:
        """libvirt's refusal becomes a code of ours, by its error number, with its words."""
        runtime = vms.new("n1")
        async with closing(vms), removing(runtime, "lost"):
            spec = machine("idle", networks=(NetworkSpec(network="nowhere"),))
            await runtime.create(order_of("lost", spec))
            with pytest.raises(RuntimeFailedError, match="nowhere") as raised:
                await runtime.start("lost")
            assert raised.value.code is FailureCode.INVALID_SPEC

    async def test_verbs_without_a_technology_are_refused(self, vms: LibvirtBench) -> None:
        """Commands inside, and logs of what is not there, are answers and no crashes."""
        runtime = vms.new("n1")
        async with closing(vms):
            with pytest.raises(RuntimeFailedError, match="runs no commands"):
                await anext(runtime.execute("w", ["true"], nothing()))
            with pytest.raises(RuntimeFailedError, match="no machine w"):
                await texts(runtime, "w")
