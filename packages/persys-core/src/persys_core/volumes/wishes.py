"""The volumes that a spec names, and which of them only one node at a time may write to."""

from __future__ import annotations

from collections.abc import Mapping

from persys_core.model.spec import ManagedVolume, WorkloadSpec
from persys_core.model.volume import VolumeId
from persys_core.placement.demand import LOCAL_DRIVER, driver_name

__all__ = ["is_exclusive_volume", "is_local", "volume_id", "wanted_volumes"]

_SHARED_MODES = frozenset({"readwritemany", "readonlymany", "rwx", "rox"})


def volume_id(volume: ManagedVolume) -> VolumeId:
    """``{driver}:{name}``, as the reference and its agents name it."""
    return f"{driver_name(volume.driver)}:{volume.name.strip()}"


def wanted_volumes(spec: WorkloadSpec) -> Mapping[VolumeId, ManagedVolume]:
    """The volumes of ``spec`` by id; unnamed ones have no record, as in the reference."""
    return {volume_id(each): each for each in spec.managed_volumes if each.name.strip()}


def is_local(driver: str) -> bool:
    """Whether each node has data of its own under one name."""
    return driver_name(driver) == LOCAL_DRIVER


def is_exclusive_volume(volume: ManagedVolume) -> bool:
    """Whether two nodes that write to it at once would destroy it.

    A local one is not: each node has its own. Without an access mode it counts as exclusive.
    """
    mode = volume.access_mode.replace("-", "").strip().lower()
    return not is_local(volume.driver) and not volume.read_only and mode not in _SHARED_MODES
