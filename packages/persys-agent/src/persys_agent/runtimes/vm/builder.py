"""From an order to a defined domain: the plan, then its seed and disks, then the definition.

Decided here: everything that can be wrong with a spec is found before anything is written; what a
failed build wrote is deleted again; a disk that is there already is used as it is, unless it is
marked as another workload's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from attrs import evolve, frozen

from persys_agent.runtimes.cloud_init.image import write_seed
from persys_agent.runtimes.cloud_init.seed import Seed, seed_of
from persys_agent.runtimes.machine.images import (
    Marker,
    delete_disk,
    make_disk,
    marker_of,
    storage_failure,
)
from persys_agent.runtimes.machine.wishes import boot_of, machine_of, memory_mb_of, vcpus_of
from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_agent.runtimes.vm.disks import DiskPlaces, plan_disks
from persys_agent.runtimes.vm.domain_xml import domain_xml
from persys_agent.runtimes.vm.folders import WorkloadFolder, folder_of
from persys_agent.runtimes.vm.host import Host
from persys_agent.runtimes.vm.link import LibvirtLink
from persys_agent.runtimes.vm.ownership import Mark
from persys_agent.runtimes.vm.plan import (
    DomainPlan,
    PlannedDisk,
    Source,
    domain_uuid,
    nics_of,
)
from persys_agent.runtimes.vm.settings import VmSettings
from persys_core.model.ids import WorkloadId

__all__ = ["Build", "build_domain", "plan_build", "release_old"]


@frozen
class Build:
    """All that is to be made."""

    plan: DomainPlan
    seed: Seed | None
    folder: WorkloadFolder


def plan_build(order: Order, owner: Owner, host: Host, settings: VmSettings) -> Build:
    """Look at the order and at what is on the host. Raises ``RuntimeFailedError``."""
    vm, name = machine_of(order), order.workload_id
    folder = folder_of(settings.state_dir, owner, name)
    seed = seed_of(name, vm)
    roots = (settings.images_root, folder.path, *settings.disk_roots)
    places = DiskPlaces(settings.images_root, roots, folder.path)
    mark = Mark(owner, name, order.revision_id, order.spec_hash)
    plan = DomainPlan(
        name=name,
        uuid=domain_uuid(mark),
        mark=mark,
        host=host,
        vcpus=vcpus_of(order.spec, vm),
        memory_mb=memory_mb_of(order.spec, vm),
        cpu_millicores=order.spec.resources.cpu_millicores,
        disks=plan_disks(vm, order.volumes, folder.seed if seed else None, places),
        nics=nics_of(name, vm, settings.default_network),
        boot=boot_of(vm.metadata, settings.images_root),
        console=folder.console,
        labels=vm.metadata,
    )
    for disk in plan.disks:
        _check(disk, plan)
    return Build(plan, seed, folder)


async def build_domain(build: Build, link: LibvirtLink) -> None:
    """Write and define. Raises ``RuntimeFailedError``, ``RuntimeUnavailableError`` and
    ``LibvirtRefusedError``; nothing of it is left then."""
    made: list[str] = []
    try:
        plan = await _write(build, made)
        xml = domain_xml(plan)
        await link.call(lambda connection: connection.defineXML(xml))
    except OSError as error:
        build.folder.discard(build.plan.name, made)
        raise storage_failure(error, "cannot write the machine's files") from error
    except BaseException:
        build.folder.discard(build.plan.name, made)
        raise


def release_old(files: list[str], build: Build) -> None:
    """Delete the seed, the console and those disks of the old revision that the new one does not
    have, or has made of another image; data on the others survives."""
    build.folder.discard(build.plan.name, [])
    kept = {disk.location: str(disk.backing or "") for disk in build.plan.disks}
    for file in files:
        path = Path(file)
        marker = marker_of(path)
        if marker is not None and kept.get(file) != marker.backing:
            delete_disk(path, build.plan.name)


async def _write(build: Build, made: list[str]) -> DomainPlan:
    plan = build.plan
    build.folder.make()
    if build.seed is not None:
        image = await write_seed(build.seed, build.folder.seed)
        plan = evolve(plan, mark=evolve(plan.mark, seed=image.metadata()))
    for disk in plan.disks:
        if await asyncio.to_thread(_is_missing, disk, plan.name):
            if not disk.is_managed:
                made.append(disk.location)
            await make_disk(
                Path(disk.location),
                plan.name,
                form=disk.form,
                size_gb=disk.makes_gb,
                backing=disk.backing,
                is_marked=not disk.is_managed,
            )
    return plan


def _is_missing(disk: PlannedDisk, workload_id: WorkloadId) -> bool:
    """Whether it has to be made; one of ours that is left over from another image has to."""
    if not _is_to_be_made(disk):
        return False
    path, wanted = Path(disk.location), Marker(workload_id, str(disk.backing or ""))
    marker = marker_of(path)
    if marker is not None and marker != wanted:
        delete_disk(path, workload_id)
    return not path.exists()


def _is_to_be_made(disk: PlannedDisk) -> bool:
    return disk.source is Source.FILE and bool(disk.makes_gb or disk.backing)


def _check(disk: PlannedDisk, plan: DomainPlan) -> None:
    """Raises ``RuntimeFailedError`` for a file that is another's, or missing and not to be made."""
    path = Path(disk.location)
    if disk.source is not Source.FILE or disk.serial == "cidata":
        return
    marker = marker_of(path)
    if marker is not None and marker.workload_id != plan.name and path.exists():
        whose = f"workload {marker.workload_id}" if marker.workload_id else "another program"
        text = f"disk {path} belongs to {whose}"
        raise RuntimeFailedError(FailureCode.NAME_CONFLICT, text)
    if not path.exists() and not _is_to_be_made(disk):
        text = f"no disk {path}: give it a size or a backing file to have it made"
        raise RuntimeFailedError(FailureCode.IMAGE_NOT_FOUND, text)
