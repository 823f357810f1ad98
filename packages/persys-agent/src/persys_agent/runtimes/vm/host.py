"""What this host can run, from libvirt's own capabilities.

Decided here: the emulator, the architecture and the machine type of new domains (``q35`` where it
is offered, else ``pc``, else ``virt``, else the first), and whether KVM is offered at all. Whether
KVM also works is seen by ``accelerator.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from attrs import frozen

from persys_agent.runtimes.port import RuntimeUnavailableError

__all__ = ["Host", "host_of"]

_PREFERRED = ("q35", "pc", "virt")


@frozen
class Host:
    """``virt_type`` is libvirt's: ``kvm`` or ``qemu``."""

    arch: str
    emulator: str
    machine: str
    virt_type: str
    offers_kvm: bool = False


def host_of(capabilities: str) -> Host:
    """The host as it is without KVM. Raises ``RuntimeUnavailableError`` where libvirt knows no
    emulator for the host's own architecture."""
    document = ET.fromstring(capabilities)
    arch = document.findtext("host/cpu/arch", "")
    for guest in document.findall("guest"):
        described = guest.find("arch")
        is_ours = described is not None and described.get("name") == arch
        if described is not None and is_ours and guest.findtext("os_type") == "hvm":
            kinds = [each.get("type", "") for each in described.findall("domain")]
            machines = [each.text or "" for each in described.findall("machine")]
            emulator = described.findtext("emulator", "")
            return Host(arch, emulator, _machine(machines), "qemu", "kvm" in kinds)
    raise RuntimeUnavailableError(f"libvirt finds no emulator for {arch}: install QEMU")


def _machine(offered: Sequence[str]) -> str:
    for each in _PREFERRED:
        if each in offered:
            return each
    return offered[0] if offered else ""
