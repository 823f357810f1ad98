"""What is done with domains over an open connection; everything here blocks.

Decided here: a domain is looked up by the workload's id, and nothing but reading its mark is done
with one that is not ours. Errors are libvirt's own; ``link.py`` translates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from persys_agent.runtimes.machine.usage import Counters
from persys_agent.runtimes.port import Instance, Owner
from persys_agent.runtimes.vm.binding import Connection, Domain, load_libvirt
from persys_agent.runtimes.vm.domain_xml import disk_files, nic_addresses
from persys_agent.runtimes.vm.ownership import NAMESPACE, Mark, read_mark
from persys_agent.runtimes.vm.states import domain_state, is_active
from persys_agent.runtimes.vm.usage import STATS, counters_of
from persys_core.model.ids import WorkloadId

__all__ = [
    "Found", "Stage", "ask_to_end",
    "disks_of", "end", "find", "instance_of", "instances_of", "read_counters",
    "run", "stage_of", "undefine",
]  # fmt: skip

_NO_DOMAIN, _OPERATION_INVALID, _NO_METADATA = 42, 55, 80
_RUNNING, _PAUSED = 1, 3
_METADATA_ELEMENT = 2
_LEASES, _NEIGHBOURS = 0, 2
_UNDEFINE_ALL = 1 | 2 | 4 | 16
"""MANAGED_SAVE, SNAPSHOTS_METADATA, NVRAM, CHECKPOINTS_METADATA."""
_STATS_OF_RUNNING = 16


@frozen
class Found:
    """A domain of a name; ``mark`` is ``None`` where it is not ours."""

    domain: Domain
    mark: Mark | None


@frozen
class Stage:
    """Whether there is a guest, and whether it can hear us."""

    is_active: bool
    is_listening: bool


def find(connection: Connection, owner: Owner, workload_id: WorkloadId) -> Found | None:
    """The domain of this name, whosever it is."""
    try:
        domain = connection.lookupByName(workload_id)
    except load_libvirt().libvirtError as error:
        if error.get_error_code() == _NO_DOMAIN:
            return None
        raise
    return Found(domain, _our_mark(domain, owner))


def run(domain: Domain) -> None:
    """Start it, or let it go on; nothing where it runs."""
    code = domain.state()[0]
    if code == _PAUSED:
        domain.resume()
    elif code != _RUNNING:
        domain.create()


def stage_of(domain: Domain) -> Stage:
    """Whether it runs."""
    code = domain.state()[0]
    return Stage(is_active(code), code == _RUNNING)


def ask_to_end(domain: Domain) -> None:
    """Press its power button (ACPI); nothing where it has ended meanwhile."""
    _unless_ended(domain.shutdown)


def end(domain: Domain) -> None:
    """Cut its power; nothing where it has ended."""
    _unless_ended(domain.destroy)


def undefine(domain: Domain) -> list[str]:
    """Forget it with its NVRAM, saved state and snapshots; returns the files of its disks."""
    files = disks_of(domain)
    try:
        domain.undefineFlags(_UNDEFINE_ALL)
    except load_libvirt().libvirtError as error:
        if error.get_error_code() != _NO_DOMAIN:
            raise
    return files


def disks_of(domain: Domain) -> list[str]:
    """The files of its disks."""
    return disk_files(domain.XMLDesc())


def instance_of(domain: Domain, mark: Mark) -> Instance:
    """The instance as it is now."""
    code, reason = domain.state()[:2]
    found = domain_state(code, reason)
    return Instance(
        mark.workload_id,
        mark.revision_id,
        mark.spec_hash,
        found.state,
        found.message,
        metadata={**found.metadata, **mark.seed, **_network(domain, is_active(code))},
    )


def instances_of(connection: Connection, owner: Owner) -> list[Instance]:
    """Every domain of ours, in the order of ids."""
    instances = []
    for domain, mark in _ours(connection.listAllDomains(), owner):
        try:
            instances.append(instance_of(domain, mark))
        except load_libvirt().libvirtError as error:
            if error.get_error_code() != _NO_DOMAIN:
                raise
    return sorted(instances, key=lambda each: each.workload_id)


def read_counters(connection: Connection, owner: Owner) -> dict[WorkloadId, Counters]:
    """The counters of all running domains of ours, with one call for all of them."""
    records = {d.name(): (d, s) for d, s in connection.getAllDomainStats(STATS, _STATS_OF_RUNNING)}
    ours = _ours([domain for domain, _ in records.values()], owner)
    return {mark.workload_id: counters_of(records[domain.name()][1]) for domain, mark in ours}


def _ours(domains: Sequence[Domain], owner: Owner) -> Iterator[tuple[Domain, Mark]]:
    for domain in domains:
        mark = _our_mark(domain, owner)
        if mark is not None:
            yield domain, mark


def _our_mark(domain: Domain, owner: Owner) -> Mark | None:
    try:
        mark = read_mark(domain.metadata(_METADATA_ELEMENT, NAMESPACE))
    except load_libvirt().libvirtError as error:
        if error.get_error_code() in {_NO_METADATA, _NO_DOMAIN}:
            return None
        raise
    return mark if mark.owner == owner and mark.workload_id == domain.name() else None


def _unless_ended(verb: object) -> None:
    assert callable(verb)
    try:
        verb()
    except load_libvirt().libvirtError as error:
        if error.get_error_code() not in {_OPERATION_INVALID, _NO_DOMAIN}:
            raise


def _network(domain: Domain, is_running: bool) -> dict[str, str]:
    macs = nic_addresses(domain.XMLDesc())
    if not macs:
        return {}
    described = {"vm.mac_addresses": ",".join(macs)}
    if is_running:
        try:
            described |= _addresses(domain)
        except load_libvirt().libvirtError as error:
            described["vm.network_lookup_error"] = str(error)
    return described


def _addresses(domain: Domain) -> dict[str, str]:
    """Leases of libvirt's networks; on a bridge, what the host's neighbour table has."""
    found = _by_interface(domain.interfaceAddresses(_LEASES))
    if not any(found.values()):
        found = _by_interface(domain.interfaceAddresses(_NEIGHBOURS))
    every = [address for addresses in found.values() for address in addresses]
    if not every:
        return {}
    named = (f"{name}:{'|'.join(addresses)}" for name, addresses in sorted(found.items()))
    return {
        "vm.ip_addresses": ",".join(every),
        "vm.primary_ip": every[0],
        "vm.interfaces": ",".join(named),
    }


def _by_interface(answer: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    return {name: list(_address_texts(described)) for name, described in answer.items()}


def _address_texts(described: Mapping[str, object]) -> Iterator[str]:
    addresses = described.get("addrs")
    for each in addresses if isinstance(addresses, list) else ():
        if isinstance(each, dict) and isinstance(each.get("addr"), str):
            yield each["addr"]
