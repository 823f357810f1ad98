"""What a spec wishes of a machine, whatever runs it: CPUs, memory, and a kernel of its own.

Decided here: what stands in for a number that the spec leaves open, and that kernels and initrds
are files below the operator's folder of images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from persys_agent.runtimes.machine.images import allowed_path
from persys_agent.runtimes.port import FailureCode, Order, RuntimeFailedError
from persys_core.model.spec import VmSpec, WorkloadSpec

__all__ = ["Boot", "boot_of", "machine_of", "memory_mb_of", "vcpus_of"]

_MILLICORES_PER_CPU = 1000
_KERNEL, _INITRD, _COMMAND_LINE = (
    "persys.agent.kernel",
    "persys.agent.initrd",
    "persys.agent.cmdline",
)


@frozen
class Boot:
    """A kernel that is started directly; empty where the machine boots from a disk."""

    kernel: str = ""
    initrd: str = ""
    command_line: str = ""


def machine_of(order: Order) -> VmSpec:
    """The machine that is ordered. Raises ``RuntimeFailedError`` where it is none."""
    if not isinstance(order.spec.body, VmSpec):
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, "the spec is not that of a machine")
    return order.spec.body


def vcpus_of(spec: WorkloadSpec, vm: VmSpec) -> int:
    """As asked for; else enough for the CPU that was placed; one at least."""
    millicores = spec.resources.cpu_millicores
    return max(1, vm.vcpus or -(-millicores // _MILLICORES_PER_CPU))


def memory_mb_of(spec: WorkloadSpec, vm: VmSpec) -> int:
    """As asked for, else what was placed. Raises ``RuntimeFailedError`` where neither says."""
    wanted = vm.memory_mb or spec.resources.memory_mb
    if wanted <= 0:
        raise RuntimeFailedError(FailureCode.INVALID_SPEC, "a machine needs memory_mb")
    return wanted


def boot_of(metadata: Mapping[str, str], images_root: Path, kernel: str = "") -> Boot:
    """The kernel that the machine's metadata names, else ``kernel``, if any.

    Raises ``RuntimeFailedError`` for a file that is not there, or lies elsewhere.
    """
    chosen = metadata.get(_KERNEL, "") or kernel
    if not chosen:
        return Boot()
    initrd = _boot_file(metadata.get(_INITRD, ""), images_root)
    return Boot(_boot_file(chosen, images_root), initrd, metadata.get(_COMMAND_LINE, ""))


def _boot_file(name: str, images_root: Path) -> str:
    if not name:
        return ""
    path = allowed_path(str(images_root / name), [images_root])
    if not path.is_file():
        text = f"no file {name!r} in {images_root}"
        raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, text)
    return str(path)
