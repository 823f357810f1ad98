"""The stored shape of a workload's spec, and what one of the reference means in our words."""

from __future__ import annotations

from datetime import datetime

from attrs import evolve, field, frozen

from persys_adapters.records.json_values import (
    EPOCH,
    JsonObject,
    from_json,
    named,
    only_read,
    to_json,
)
from persys_adapters.records.machines import StoredMachine, machine_from, machine_shape
from persys_adapters.records.mounts import port_from, port_text, volume_from, volume_text
from persys_core.model.constraints import SELECTOR_PREFIX, constraint_errors
from persys_core.model.resources import CPU, DISK, MEMORY, Resources
from persys_core.model.spec import (
    ComposeSpec,
    ContainerSpec,
    ManagedVolume,
    PortMapping,
    SpecBody,
    VmSpec,
    VolumeMount,
    WorkloadSpec,
)
from persys_core.model.states import DesiredState, RestartPolicy, WorkloadType
from persys_core.model.workload import Workload

__all__ = ["SpecExtras", "StoredWorkload", "workload_from", "workload_json"]

_TYPE_ALIASES = {"micro-vm": WorkloadType.MICROVM, "firecracker": WorkloadType.MICROVM}


@frozen
class StoredResources:
    """A request in the reference's units: cores, MB, GB."""

    cpu_usage: float = field(default=0.0, metadata=named("cpu_usage"))
    memory_usage: int = field(default=0, metadata=named("memory_usage"))
    disk_usage: int = field(default=0, metadata=named("disk_usage"))


@frozen
class SpecExtras:
    """What a spec of ours has beyond the reference's.

    ``resources``, ``ports`` and ``volumes`` are there only where the reference's form would lose
    something: a dimension it lacks, a path with a colon.
    """

    metadata: dict[str, str] = field(factory=dict)
    resources: Resources | None = None
    privileged: bool = False
    ports: list[PortMapping] | None = None
    volumes: list[VolumeMount] | None = None


@frozen
class StoredWorkload:
    """``/workloads-spec/{id}``; which of the fields count is told by ``type``.

    Under ``persys`` stands what a workload of ours has beside its spec, and ``spec`` with what
    the spec has beyond this; nothing large stands twice.
    """

    id: str = ""
    type: str = ""
    revision_id: str = ""
    image: str = ""
    command_list: list[str] = field(factory=list)
    compose_yaml: str = ""
    git_repo: str = ""
    git_branch: str = ""
    env_vars: dict[str, str] = field(factory=dict)
    resources: StoredResources = StoredResources()
    desired_state: str = ""
    created_at: datetime | None = None
    ports: list[str] = field(factory=list)
    volumes: list[str] = field(factory=list)
    restart_policy: str = ""
    vm: StoredMachine | None = None
    managed_volumes: list[ManagedVolume] = field(factory=list)
    command: str = field(default="", metadata=only_read())
    compose: str = field(default="", metadata=only_read())
    labels: dict[str, str] = field(factory=dict, metadata=only_read())


def workload_json(workload: Workload) -> JsonObject:
    """The stored form of ``workload``."""
    extras = to_json(_extras(workload.spec))
    ours = {**to_json(workload), "spec": extras}
    return {**to_json(_shown(workload)), "persys": ours if extras else _without_spec(ours)}


def workload_from(value: JsonObject) -> Workload:
    """The workload in ``value``; one of the reference gets sensible defaults.

    Raises ValueError for an unknown type.
    """
    stored = from_json(value, StoredWorkload)
    if "persys" not in value:
        return _adopted(stored)
    ours = value["persys"]
    spec = _spec(stored, from_json(ours.get("spec", {}), SpecExtras))
    return from_json({**ours, "spec": spec}, Workload)


def _without_spec(ours: JsonObject) -> JsonObject:
    return {name: part for name, part in ours.items() if name != "spec"}


def _adopted(stored: StoredWorkload) -> Workload:
    command = tuple(stored.command_list) or tuple(stored.command.split())
    yaml = stored.compose_yaml or stored.compose
    created_at = stored.created_at or EPOCH
    filled = evolve(stored, command_list=list(command), compose_yaml=yaml)
    return Workload(
        id=stored.id,
        uid="",
        spec=_spec(filled, SpecExtras(metadata=_selectors(stored.labels))),
        revision_id=stored.revision_id,
        desired_state=_desired(stored.desired_state),
        created_at=created_at,
        updated_at=created_at,
    )


def _shown(workload: Workload) -> StoredWorkload:
    resources = workload.spec.resources
    shown = StoredWorkload(
        id=workload.id,
        type=workload.spec.type,
        revision_id=workload.revision_id,
        resources=StoredResources(
            resources.cpu_millicores / 1000, resources.memory_mb, resources.disk_gb
        ),
        desired_state=workload.desired_state,
        created_at=workload.created_at,
    )
    match workload.spec.body:
        case ContainerSpec():
            return _with_container(shown, workload.spec.body)
        case ComposeSpec():
            return _with_compose(shown, workload.spec.body)
        case VmSpec():
            return evolve(shown, vm=machine_shape(workload.spec.body))


def _extras(spec: WorkloadSpec) -> SpecExtras:
    extras = SpecExtras(
        metadata=dict(spec.metadata),
        resources=None if _is_plain(spec.resources) else spec.resources,
    )
    body = spec.body
    if not isinstance(body, ContainerSpec):
        return extras
    return evolve(
        extras,
        privileged=body.privileged,
        ports=None if all(map(_port_survives, body.ports)) else list(body.ports),
        volumes=None if all(map(_volume_survives, body.volumes)) else list(body.volumes),
    )


def _spec(stored: StoredWorkload, extras: SpecExtras) -> WorkloadSpec:
    return WorkloadSpec(
        type=_type(stored.type),
        resources=_resources(stored, extras),
        body=_body(stored, extras),
        metadata=extras.metadata,
    )


def _with_container(stored: StoredWorkload, body: ContainerSpec) -> StoredWorkload:
    return evolve(
        stored,
        image=body.image,
        command_list=list(body.command),
        env_vars=dict(body.env),
        ports=[port_text(port) for port in body.ports],
        volumes=[volume_text(volume) for volume in body.volumes],
        restart_policy=body.restart_policy,
        managed_volumes=list(body.managed_volumes),
    )


def _with_compose(stored: StoredWorkload, body: ComposeSpec) -> StoredWorkload:
    return evolve(
        stored,
        compose_yaml=body.inline_yaml,
        git_repo=body.git_repo,
        git_branch=body.git_ref,
        env_vars=dict(body.env),
    )


def _body(stored: StoredWorkload, extras: SpecExtras) -> SpecBody:
    match _type(stored.type):
        case WorkloadType.CONTAINER:
            return _container(stored, extras)
        case WorkloadType.COMPOSE:
            return ComposeSpec(
                stored.compose_yaml, stored.git_repo, stored.git_branch, stored.env_vars
            )
        case WorkloadType.VM | WorkloadType.MICROVM:
            return machine_from(stored.vm or StoredMachine())


def _container(stored: StoredWorkload, extras: SpecExtras) -> ContainerSpec:
    policies = set(RestartPolicy)
    return ContainerSpec(
        image=stored.image,
        command=tuple(stored.command_list),
        env=stored.env_vars,
        ports=tuple(map(port_from, stored.ports) if extras.ports is None else extras.ports),
        volumes=tuple(
            map(volume_from, stored.volumes) if extras.volumes is None else extras.volumes
        ),
        restart_policy=RestartPolicy(
            stored.restart_policy if stored.restart_policy in policies else RestartPolicy.NO
        ),
        privileged=extras.privileged,
        managed_volumes=tuple(stored.managed_volumes),
    )


def _type(text: str) -> WorkloadType:
    name = text.strip().lower()
    return _TYPE_ALIASES.get(name) or WorkloadType(name)


def _desired(text: str) -> DesiredState:
    """As the reference reads it: what is neither stopped nor deleted is meant to run."""
    for state in (DesiredState.STOPPED, DesiredState.DELETED):
        if text.lower() == state.lower():
            return state
    return DesiredState.RUNNING


def _resources(stored: StoredWorkload, extras: SpecExtras) -> Resources:
    if extras.resources is not None:
        return extras.resources
    return Resources.of(
        cpu_millicores=round(stored.resources.cpu_usage * 1000),
        memory_mb=stored.resources.memory_usage,
        disk_gb=stored.resources.disk_usage,
    )


def _selectors(labels: dict[str, str]) -> dict[str, str]:
    """Labels of a workload of the reference select nodes."""
    wishes = {SELECTOR_PREFIX + name: value for name, value in labels.items()}
    return {name: text for name, text in wishes.items() if not any(constraint_errors({name: text}))}


def _is_plain(resources: Resources) -> bool:
    return resources.amounts.keys() <= {CPU, MEMORY, DISK}


def _port_survives(port: PortMapping) -> bool:
    try:
        return port_from(port_text(port)) == port
    except ValueError:
        return False


def _volume_survives(volume: VolumeMount) -> bool:
    return volume_from(volume_text(volume)) == volume
