"""Whether a workload's data ties it to the node that it ran on.

Decided here: which specs have node-local data. Not decided here: where that node is (the status
record remembers it) and what happens when it is lost (``reconcile``).
"""

from __future__ import annotations

from persys_core.model.constraints import (
    PersistenceClass,
    PlacementConstraints,
    default_persistence,
    parse_constraints,
)
from persys_core.model.spec import ComposeSpec, ContainerSpec, WorkloadSpec
from persys_core.volumes.compose_file import has_local_volumes
from persys_core.volumes.wishes import is_local

__all__ = ["has_local_data"]

_LOCAL_KEYS = ("host_path", "bind_mount")


def has_local_data(spec: WorkloadSpec) -> bool:
    """Whether the workload must come back to the node that holds its data.

    The user's word (``persistence_class``, ``allow_move``) decides first. Without it machines,
    ``local`` managed volumes, named volumes of a Compose file and writable host paths are
    node-local (defect A8).
    """
    constraints = parse_constraints(spec.metadata)
    if constraints.allow_move:
        return False
    return _persistence(spec, constraints) is PersistenceClass.NODE_LOCAL


def _persistence(spec: WorkloadSpec, constraints: PlacementConstraints) -> PersistenceClass:
    if constraints.persistence is not None:
        return constraints.persistence
    if _has_local_volume(spec) or _has_named_volume(spec) or _has_host_path(spec):
        return PersistenceClass.NODE_LOCAL
    return default_persistence(spec.type)


def _has_local_volume(spec: WorkloadSpec) -> bool:
    return any(is_local(volume.driver) for volume in spec.managed_volumes)


def _has_named_volume(spec: WorkloadSpec) -> bool:
    return isinstance(spec.body, ComposeSpec) and has_local_volumes(spec.body.inline_yaml)


def _has_host_path(spec: WorkloadSpec) -> bool:
    named = any(
        part in key and value for key, value in spec.metadata.items() for part in _LOCAL_KEYS
    )
    mounted = isinstance(spec.body, ContainerSpec) and any(
        not volume.read_only for volume in spec.body.volumes
    )
    return named or mounted
