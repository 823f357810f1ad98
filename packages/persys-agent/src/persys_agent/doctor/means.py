"""What is looked at of the means to run workloads: room, runtimes and storage drivers.

Decided here: a runtime that is on and cannot be used is a warning, since an agent runs without it;
none at all is a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import structlog

from persys_agent.doctor.findings import Case, Finding, Probe, Verdict
from persys_agent.host.facts import HostFacts, read_facts
from persys_agent.runtimes.port import Capability
from persys_agent.settings import NodeSettings
from persys_core.model.states import WorkloadType

__all__ = ["look_at_reserve", "look_at_runtimes", "look_at_storage"]

_PATIENCE = timedelta(seconds=20)
_SWITCHES: Mapping[WorkloadType, str] = {
    WorkloadType.CONTAINER: "docker_enabled",
    WorkloadType.COMPOSE: "compose_enabled",
    WorkloadType.VM: "vm_enabled",
    WorkloadType.MICROVM: "firecracker_enabled",
}


async def look_at_reserve(case: Case) -> AsyncIterator[Finding]:
    """What the host keeps leaves something: a node that has nothing to give is not taken in."""
    facts = await asyncio.to_thread(read_facts)
    is_well = True
    for key, has, unit in (
        ("host_reserve_cpu_millicores", facts.cpu_millicores, "millicores"),
        ("host_reserve_memory_mb", facts.memory_mb, "MiB"),
        ("host_reserve_disk_gb", await _disk_gb(case, facts), "GiB"),
    ):
        kept = getattr(case.settings, key)
        if kept and kept >= has:
            is_well = False
            yield Finding(
                "reserve", Verdict.FAIL,
                f"{key} keeps {kept} {unit} of the {has} that the machine has: workloads get none",
                "set it to less; the scheduler refuses a node that keeps more than it has",
            )  # fmt: skip
    if is_well:
        yield Finding("reserve", Verdict.OK, "leaves room for workloads")


async def _disk_gb(case: Case, facts: HostFacts) -> int:
    """The larger of what ``/`` has and what volumes can have, since either may be registered."""
    local = case.storage.get("local")
    pools = await local.pools() if local is not None else ()
    return max(facts.disk_gb, sum(pool.total_gb for pool in pools))


async def look_at_runtimes(case: Case) -> AsyncIterator[Finding]:
    """What each says of itself, or that it is switched off."""
    usable = 0
    for kind, switch in _SWITCHES.items():
        probe = case.runtimes.get(kind)
        if not getattr(case.settings, switch):
            yield Finding(kind, Verdict.OK, f"switched off by {switch}")
        elif probe is None:
            yield Finding(kind, Verdict.WARN, "this release has no such runtime", "")
        else:
            found = await _asked(probe)
            usable += found.is_available
            yield _runtime(kind, switch, found)
    if not usable:
        yield Finding(
            "runtimes", Verdict.FAIL, "none can be used: this node could run nothing",
            "make one of them work; see the lines above",
        )  # fmt: skip


async def look_at_storage(case: Case) -> AsyncIterator[Finding]:
    """What each driver says of itself; one that is not set up is not missed."""
    for name, driver in case.storage.items():
        found = await _asked(driver.probe)
        if found.is_available:
            yield Finding(f"storage {name}", Verdict.OK, found.detail)
        elif not _is_wanted(name, case.settings):
            yield Finding(f"storage {name}", Verdict.OK, f"not set up: {found.detail}")
        else:
            verdict = Verdict.FAIL if name == "local" else Verdict.WARN
            found_text, _, advice = found.detail.partition("; ")
            yield Finding(f"storage {name}", verdict, found_text, advice)


async def _asked(probe: Probe) -> Capability:
    """Probes promise not to raise; a doctor believes nobody."""
    try:
        async with asyncio.timeout(_PATIENCE.total_seconds()):
            return await probe()
    except TimeoutError:
        return Capability(False, f"no answer within {_PATIENCE.total_seconds():g} s")
    except Exception as error:
        structlog.get_logger().exception("bug: a probe raised")
        return Capability(False, f"bug: the probe raised {type(error).__name__}")


def _runtime(kind: WorkloadType, switch: str, found: Capability) -> Finding:
    if found.is_available:
        return Finding(kind, Verdict.OK, found.detail)
    text, _, advice = found.detail.partition("; ")
    return Finding(kind, Verdict.WARN, text, advice or f"make it work, or set {switch} to false")


def _is_wanted(name: str, settings: NodeSettings) -> bool:
    match name:
        case "nfs":
            return bool(settings.storage_nfs_server)
        case "ceph-rbd":
            return bool(settings.storage_ceph_pool)
        case _:
            return True
