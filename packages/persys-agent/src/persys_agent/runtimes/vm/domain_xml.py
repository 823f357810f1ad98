"""libvirt's domain XML, from a plan, built with the standard library's ElementTree.

Decided here: what every domain has (ACPI, a serial console whose output also goes to a file, a
random number source) and has not (no VNC or other display that listens, no empty attribute). No
text of a spec is ever pasted into XML.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from persys_agent.runtimes.vm.ownership import mark_element
from persys_agent.runtimes.vm.plan import DomainPlan, PlannedDisk, PlannedNic, Source

__all__ = ["disk_files", "domain_xml", "nic_addresses"]

_CPU_PERIOD_US = 100_000
_MIN_QUOTA_US = 1_000
_MILLICORES_PER_CPU = 1000
_KINDS = {
    Source.FILE: "file",
    Source.BLOCK: "block",
    Source.RBD: "network",
    Source.NFS: "network",
}
_BUSES = {"vd": "virtio", "sd": "sata", "hd": "ide"}


def domain_xml(plan: DomainPlan) -> str:
    """The definition of the domain."""
    domain = ET.Element("domain", {"type": plan.host.virt_type})
    _text(domain, "name", plan.name)
    _text(domain, "uuid", plan.uuid)
    ET.SubElement(domain, "metadata").append(mark_element(plan.mark, plan.labels))
    _text(domain, "memory", str(plan.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(plan.vcpus), placement="static")
    _limit_cpu(domain, plan)
    _boot(domain, plan)
    _features(domain, plan)
    for event, action in (("poweroff", "destroy"), ("reboot", "restart"), ("crash", "destroy")):
        _text(domain, f"on_{event}", action)
    _devices(domain, plan)
    return ET.tostring(domain, encoding="unicode")


def disk_files(xml: str) -> list[str]:
    """The files that a domain's disks lie in."""
    sources = ET.fromstring(xml).findall("devices/disk/source")
    return [path for source in sources if (path := source.get("file"))]


def nic_addresses(xml: str) -> list[str]:
    """The hardware addresses of a domain's NICs."""
    macs = ET.fromstring(xml).findall("devices/interface/mac")
    return [address for mac in macs if (address := mac.get("address"))]


def _limit_cpu(domain: ET.Element, plan: DomainPlan) -> None:
    if not 0 < plan.cpu_millicores < plan.vcpus * _MILLICORES_PER_CPU:
        return
    share = plan.cpu_millicores * _CPU_PERIOD_US // (plan.vcpus * _MILLICORES_PER_CPU)
    tune = ET.SubElement(domain, "cputune")
    _text(tune, "period", str(_CPU_PERIOD_US))
    _text(tune, "quota", str(max(_MIN_QUOTA_US, share)))


def _boot(domain: ET.Element, plan: DomainPlan) -> None:
    system = ET.SubElement(domain, "os")
    _text(system, "type", "hvm", arch=plan.host.arch, machine=plan.host.machine)
    named = {
        "kernel": plan.boot.kernel,
        "initrd": plan.boot.initrd,
        "cmdline": plan.boot.command_line,
    }
    for name, text in named.items():
        if text:
            _text(system, name, text)


def _features(domain: ET.Element, plan: DomainPlan) -> None:
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    if plan.host.arch in {"x86_64", "i686"}:
        ET.SubElement(features, "apic")
    # An emulated CPU is as able as the emulator: newer distributions refuse QEMU's default.
    mode = "host-passthrough" if plan.host.virt_type == "kvm" else "maximum"
    ET.SubElement(domain, "cpu", {"mode": mode})
    ET.SubElement(domain, "clock", {"offset": "utc"})


def _devices(domain: ET.Element, plan: DomainPlan) -> None:
    devices = ET.SubElement(domain, "devices")
    _text(devices, "emulator", plan.host.emulator)
    for disk in plan.disks:
        _disk(devices, disk)
    for nic in plan.nics:
        _nic(devices, nic)
    serial = ET.SubElement(devices, "serial", {"type": "pty"})
    ET.SubElement(serial, "log", {"file": str(plan.console), "append": "on"})
    ET.SubElement(ET.SubElement(devices, "console", {"type": "pty"}), "target", {"type": "serial"})
    random = ET.SubElement(devices, "rng", {"model": "virtio"})
    _text(random, "backend", "/dev/urandom", model="random")
    ET.SubElement(devices, "memballoon", {"model": "virtio"})


def _disk(devices: ET.Element, planned: PlannedDisk) -> None:
    kind = _KINDS[planned.source]
    device = "cdrom" if planned.is_cdrom else "disk"
    disk = ET.SubElement(devices, "disk", {"type": kind, "device": device})
    ET.SubElement(disk, "driver", {"name": "qemu", "type": planned.form})
    _source(disk, planned)
    bus = _BUSES[planned.target[:2]]
    ET.SubElement(disk, "target", {"dev": planned.target, "bus": bus})
    if planned.serial:
        _text(disk, "serial", planned.serial)
    if planned.is_read_only:
        ET.SubElement(disk, "readonly")
    if planned.boot_order:
        ET.SubElement(disk, "boot", {"order": str(planned.boot_order)})


def _source(disk: ET.Element, planned: PlannedDisk) -> None:
    match planned.source:
        case Source.FILE:
            ET.SubElement(disk, "source", {"file": planned.location})
        case Source.BLOCK:
            ET.SubElement(disk, "source", {"dev": planned.location})
        case Source.RBD | Source.NFS:
            where = {"protocol": planned.source.value, "name": planned.location}
            source = ET.SubElement(disk, "source", where)
            if planned.host:
                server = {"name": planned.host, "port": str(planned.port)}
                ET.SubElement(source, "host", server)


def _nic(devices: ET.Element, planned: PlannedNic) -> None:
    kind = "bridge" if planned.bridge else "network"
    nic = ET.SubElement(devices, "interface", {"type": kind})
    ET.SubElement(nic, "mac", {"address": planned.mac})
    ET.SubElement(nic, "source", {kind: planned.bridge or planned.network})
    if planned.device:
        ET.SubElement(nic, "target", {"dev": planned.device})
    ET.SubElement(nic, "model", {"type": planned.model})


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> None:
    ET.SubElement(parent, tag, attributes).text = text
