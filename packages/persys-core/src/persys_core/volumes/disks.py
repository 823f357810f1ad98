"""Standalone disks that a workload names in its metadata (``persys.disk.ids``, ``disk_ids``).

Decided here: how a disk's record is a volume of a workload. A disk keeps its id and its one record
(defect J3): it joins the volumes that are sent to the agent, and never the stored spec. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import evolve

from persys_core.model.constraints import parse_constraints
from persys_core.model.errors import InvalidInputError
from persys_core.model.ids import NodeId
from persys_core.model.spec import ComposeSpec, ManagedVolume, WorkloadSpec
from persys_core.model.volume import Volume, VolumeId
from persys_core.model.workload import Workload
from persys_core.volumes.outcome import Outcome
from persys_core.volumes.wishes import is_local, wanted_volumes

__all__ = ["disk_ids_of", "local_disk_node", "missing_disks", "spec_with_disks", "volumes_wanted"]


def disk_ids_of(spec: WorkloadSpec) -> tuple[VolumeId, ...]:
    """The disks that ``spec`` names; none where another scheduler's record is malformed."""
    try:
        return parse_constraints(spec.metadata).disk_ids
    except InvalidInputError:
        return ()


def volumes_wanted(spec: WorkloadSpec, after: Outcome) -> Mapping[VolumeId, ManagedVolume]:
    """The managed volumes of ``spec`` and the disks that it names and that exist, by id."""
    disks = {disk.id: _as_volume(disk) for disk in _disks(spec, after)}
    return {**wanted_volumes(spec), **disks} if disks else wanted_volumes(spec)


def missing_disks(spec: WorkloadSpec, after: Outcome) -> tuple[VolumeId, ...]:
    """The disks that ``spec`` names and nobody created."""
    known = {disk.id for disk in _disks(spec, after)}
    return tuple(id_ for id_ in disk_ids_of(spec) if id_ not in known)


def local_disk_node(spec: WorkloadSpec, after: Outcome) -> NodeId:
    """The node that has a local disk of the workload; empty where none has one yet."""
    found = (disk.node_id for disk in _disks(spec, after) if is_local(disk.driver))
    return next(filter(None, found), "")


def spec_with_disks(workload: Workload, after: Outcome) -> WorkloadSpec:
    """What the agent is sent: the stored spec, with its disks among the managed volumes."""
    spec = workload.spec
    disks = tuple(_as_volume(disk) for disk in _disks(spec, after))
    if not disks or isinstance(spec.body, ComposeSpec):
        return spec
    body = evolve(spec.body, managed_volumes=(*spec.body.managed_volumes, *disks))
    return evolve(spec, body=body)


def _disks(spec: WorkloadSpec, after: Outcome) -> Iterator[Volume]:
    for id_ in disk_ids_of(spec):
        disk = after.volume(id_)
        if disk is not None and disk.standalone:
            yield disk


def _as_volume(disk: Volume) -> ManagedVolume:
    """A disk is made to outlive its workloads, so agents are told to retain it."""
    return ManagedVolume(
        name=disk.name,
        driver=disk.driver,
        size_gb=disk.size_gb,
        access_mode=disk.access_mode,
        fs_type=disk.fs_type,
        mount_path=disk.mount_path,
        retain_policy="Retain",
    )
