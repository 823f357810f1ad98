"""The suite of the Runtime port on a real libvirtd and QEMU (emulation; guests of one sector)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import define, field

from persys_agent.runtimes.port import Owner, Runtime
from persys_agent.runtimes.vm.folders import owner_folder
from persys_agent.runtimes.vm.runtime import LibvirtRuntime
from persys_agent.runtimes.vm.settings import Accelerator, VmSettings
from persys_agent.testing.runtime import RuntimeBench, RuntimeSuite
from persys_core.model.ids import WorkloadId
from persys_core.model.resources import Resources
from persys_core.model.spec import VmSpec, WorkloadSpec
from persys_core.model.states import WorkloadType
from tests.servers.guests import IDLE, POWER_OFF, boot_sector
from tests.servers.libvirtd import Libvirtd, libvirtd

MEMORY_MB = 32


def machine(image: str) -> WorkloadSpec:
    body = VmSpec(1, MEMORY_MB, os_image=image)
    return WorkloadSpec(
        WorkloadType.VM, Resources.of(cpu_millicores=1000, memory_mb=MEMORY_MB), body
    )


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
        self.runtime, self.neighbour = self._new("n1"), self._new("n2")

    def _new(self, node: str, uri: str = "") -> LibvirtRuntime:
        settings = VmSettings(
            images_root=self.folder / "images",
            state_dir=self.folder / "state",
            accelerator=Accelerator.QEMU,
            replace_grace=timedelta(0),
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
        return self._new("n1")

    async def unreachable(self) -> Runtime:
        return self._new("n1", f"qemu+unix:///system?socket={self.folder}/nothing")

    async def leftovers(self, workload_id: WorkloadId) -> Sequence[str]:
        where = (owner_folder(self.folder / "state", Owner("n1", "c1")), self.server.folder)
        found = [str(path) for root in where for path in root.rglob(f"*{workload_id}*")]
        return [each for each in found if not each.endswith(".log")]

    async def aclose(self) -> None:
        for each in self._handed_out:
            await each.aclose()


class TestLibvirtRuntime(RuntimeSuite):
    @pytest.fixture
    def bench(self, server: Libvirtd, tmp_path: Path) -> RuntimeBench:
        return LibvirtBench(server, tmp_path)
