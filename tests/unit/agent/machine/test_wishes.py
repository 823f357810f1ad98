"""What specs wish of machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from persys_agent.runtimes.machine.wishes import (
    Boot,
    boot_of,
    machine_of,
    memory_mb_of,
    vcpus_of,
)
from persys_agent.runtimes.port import FailureCode, Order, RuntimeFailedError
from persys_core.model.resources import Resources
from persys_core.model.spec import ContainerSpec, VmSpec, WorkloadSpec
from persys_core.model.states import WorkloadType


@pytest.mark.parametrize(
    ("vcpus", "millicores", "expected"), [(2, 500, 2), (0, 1500, 2), (0, 1000, 1), (0, 0, 1)]
)
def test_vcpus_follow_what_was_placed(vcpus: int, millicores: int, expected: int) -> None:
    """The spec's number; else enough for the placed CPU; one at least."""
    vm = VmSpec(vcpus, 64)
    spec = WorkloadSpec(WorkloadType.VM, Resources.of(cpu_millicores=millicores), vm)
    assert vcpus_of(spec, vm) == expected


def test_memory_has_to_be_said() -> None:
    """The spec's, else what was placed, else an error."""
    vm = VmSpec(1, 0)
    assert memory_mb_of(WorkloadSpec(WorkloadType.VM, Resources.of(memory_mb=99), vm), vm) == 99
    with pytest.raises(RuntimeFailedError, match="memory_mb"):
        memory_mb_of(WorkloadSpec(WorkloadType.VM, Resources(), vm), vm)


def test_a_container_is_no_machine() -> None:
    """A spec of another kind is refused."""
    spec = WorkloadSpec(WorkloadType.VM, Resources(), ContainerSpec("image"))
    with pytest.raises(RuntimeFailedError) as raised:
        machine_of(Order("w", "r", "h", spec))
    assert raised.value.code is FailureCode.INVALID_SPEC


def test_a_kernel_is_a_file_of_the_operators(tmp_path: Path) -> None:
    """Kernel and initrd are found in the folder of images; the command line is taken as it is."""
    for name in ("vmlinuz", "initrd"):
        (tmp_path / name).touch()
    metadata = {
        "persys.agent.kernel": "vmlinuz",
        "persys.agent.initrd": "initrd",
        "persys.agent.cmdline": "quiet",
    }
    expected = Boot(str(tmp_path / "vmlinuz"), str(tmp_path / "initrd"), "quiet")
    assert boot_of(metadata, tmp_path) == expected
    assert boot_of({}, tmp_path) == Boot()
    assert boot_of({}, tmp_path, "vmlinuz").kernel == str(tmp_path / "vmlinuz")


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        ("../../etc/passwd", FailureCode.INVALID_SPEC),
        ("/etc/passwd", FailureCode.INVALID_SPEC),
        ("nothing", FailureCode.IMAGE_NOT_FOUND),
    ],
)
def test_other_files_are_no_kernels(tmp_path: Path, kernel: str, code: FailureCode) -> None:
    """A file elsewhere is refused, one that is not there is missing."""
    with pytest.raises(RuntimeFailedError) as raised:
        boot_of({"persys.agent.kernel": kernel}, tmp_path)
    assert raised.value.code is code
