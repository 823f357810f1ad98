"""The XML that libvirt is given."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from attrs import evolve

from persys_agent.runtimes.machine.wishes import Boot
from persys_agent.runtimes.port import Owner
from persys_agent.runtimes.vm.domain_xml import disk_files, domain_xml, nic_addresses
from persys_agent.runtimes.vm.host import Host
from persys_agent.runtimes.vm.ownership import NAMESPACE, Mark, read_mark
from persys_agent.runtimes.vm.plan import (
    DomainPlan,
    PlannedDisk,
    PlannedNic,
    Source,
    domain_uuid,
    nics_of,
)
from persys_core.model.spec import NetworkSpec, VmSpec

EVIL = "<a b='\"&"
MARK = Mark(Owner("n1", "c1"), "w", "r", "h", {"vm.cloud_init_seed_path": EVIL})
HOST = Host("x86_64", "/usr/bin/qemu", "q35", "qemu")
PLAN = DomainPlan(
    "w",
    domain_uuid(MARK),
    MARK,
    HOST,
    vcpus=2,
    memory_mb=512,
    cpu_millicores=2000,
    disks=(PlannedDisk("vda", Source.FILE, EVIL, "qcow2", boot_order=1, serial=EVIL),),
    nics=(PlannedNic("52:54:00:00:00:01", network="default"),),
    boot=Boot(),
    console=Path("/c/console.log"),
)


def document(plan: DomainPlan = PLAN) -> ET.Element:
    return ET.fromstring(domain_xml(plan))


def test_sizes_and_machine_are_those_of_the_plan() -> None:
    """Memory in MiB, CPUs, machine type and accelerator are said, none of them fixed."""
    domain = document()
    assert domain.get("type") == "qemu"
    assert (domain.findtext("memory"), domain.findtext("vcpu")) == ("512", "2")
    kind = domain.find("os/type")
    assert kind is not None
    assert (kind.get("machine"), kind.get("arch")) == ("q35", "x86_64")
    assert domain.findtext("devices/emulator") == "/usr/bin/qemu"


def test_no_text_breaks_out() -> None:
    """Whatever a spec holds comes back as it was."""
    source = document().find("devices/disk/source")
    assert source is not None
    assert source.get("file") == EVIL
    assert document().findtext("devices/disk/serial") == EVIL


def test_nothing_listens() -> None:
    """There is no VNC, nor any other display (defect 32)."""
    devices = document().find("devices")
    assert devices is not None
    assert devices.find("graphics") is None
    assert devices.find("video") is None


def test_the_console_is_written_down() -> None:
    """Whatever the serial port writes goes to the end of the console's file."""
    log = document().find("devices/serial/log")
    assert log is not None
    assert (log.get("file"), log.get("append")) == ("/c/console.log", "on")


def test_the_mark_comes_back() -> None:
    """Node, cluster, workload, revision and hash are in an element of our namespace."""
    element = document().find(f"metadata/{{{NAMESPACE}}}workload")
    assert element is not None
    assert read_mark(ET.tostring(element, encoding="unicode")) == MARK


def test_labels_are_shown_without_secrets() -> None:
    """The metadata of the spec stands in the domain for people, its secret values masked."""
    labels = {"team": EVIL, "db_password": "hunter2"}
    xml = domain_xml(evolve(PLAN, labels=labels))
    found = ET.fromstring(xml).findall(f"metadata/*/{{{NAMESPACE}}}label")
    assert {each.get("key"): each.get("value") for each in found}["team"] == EVIL
    assert "db_password" in xml
    assert "hunter2" not in xml


def test_no_attribute_is_empty() -> None:
    """Neither an empty address nor an empty disk type is ever written (defect 32)."""
    for element in document().iter():
        if element.tag.startswith("{"):
            continue
        assert all(element.attrib.values()), ET.tostring(element)


def test_a_limit_below_the_cpus_is_enforced() -> None:
    """A CPU limit becomes a quota for each vCPU; as many millicores as vCPUs need none."""
    assert document().find("cputune") is None
    limited = document(evolve(PLAN, cpu_millicores=500))
    # 0.5 CPUs on two vCPUs: a quarter of each period of 100 ms
    assert limited.findtext("cputune/quota") == "25000"
    assert limited.findtext("cputune/period") == "100000"


def test_the_cpu_follows_the_accelerator() -> None:
    """KVM passes the host's CPU on, emulation gives all that it can."""
    modes = []
    for virt_type in ("kvm", "qemu"):
        cpu = document(evolve(PLAN, host=evolve(HOST, virt_type=virt_type))).find("cpu")
        assert cpu is not None
        modes.append(cpu.get("mode"))
    assert modes == ["host-passthrough", "maximum"]


def test_a_kernel_is_booted_directly() -> None:
    """Kernel, initrd and command line, where there are any."""
    assert document().find("os/kernel") is None
    domain = document(evolve(PLAN, boot=Boot("/k", "/i", "a <b")))
    texts = [domain.findtext(f"os/{name}") for name in ("kernel", "initrd", "cmdline")]
    assert texts == ["/k", "/i", "a <b"]


def test_network_disks_have_a_server() -> None:
    """Ceph without one leaves it to Ceph's own configuration."""
    disks = (
        PlannedDisk("vda", Source.RBD, "pool/image"),
        PlannedDisk("vdb", Source.NFS, "/x", "qcow2", host="filer", port=2049),
        PlannedDisk("vdc", Source.BLOCK, "/dev/rbd0", is_read_only=True),
        PlannedDisk("sda", Source.FILE, "/cd.iso", is_cdrom=True, is_read_only=True),
    )
    rbd, nfs, block, cdrom = document(evolve(PLAN, disks=disks)).findall("devices/disk")
    assert (rbd.get("type"), rbd.find("source/host")) == ("network", None)
    server = nfs.find("source/host")
    assert server is not None
    assert (server.get("name"), server.get("port")) == ("filer", "2049")
    assert (block.get("type"), block.find("readonly") is not None) == ("block", True)
    assert cdrom.get("device") == "cdrom"


def test_nics_are_on_networks_or_bridges() -> None:
    """A bridge where one is named, else the network, else the operator's default."""
    networks = (NetworkSpec(bridge="br0", model="e1000"), NetworkSpec(network="lab"), NetworkSpec())
    nics = nics_of("w", VmSpec(1, 64, networks=networks), "default")
    xml = domain_xml(evolve(PLAN, nics=nics))
    found = ET.fromstring(xml).findall("devices/interface")
    sources = [dict(source.attrib) for nic in found if (source := nic.find("source")) is not None]
    assert sources == [{"bridge": "br0"}, {"network": "lab"}, {"network": "default"}]
    assert nic_addresses(xml) == [nic.mac for nic in nics]


def test_files_are_read_back() -> None:
    """The files of a domain's disks are found in its XML, network disks left out."""
    more = (*PLAN.disks, PlannedDisk("vdb", Source.RBD, "pool/image"))
    assert disk_files(domain_xml(evolve(PLAN, disks=more))) == [EVIL]


def test_identity_is_the_workloads() -> None:
    """The UUID is the same for every revision, and another for another agent."""
    assert domain_uuid(MARK) == domain_uuid(evolve(MARK, revision_id="other", spec_hash="x"))
    assert domain_uuid(MARK) != domain_uuid(evolve(MARK, owner=Owner("n2", "c1")))
