"""The labels that say whose a container is, and what follows from them.

Decided here: which container is ours. The reference agent marks what it made with
``persys.managed`` and the workload's id, and not with its node: such a container may be taken over
by the workload of that id, and is otherwise nobody's that we know.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from persys_agent.runtimes.port import FailureCode, Order, Owner, RuntimeFailedError
from persys_core.model.ids import WorkloadId, is_valid_id

__all__ = [
    "CLUSTER",
    "MANAGED",
    "NODE",
    "REVISION",
    "RUNTIME",
    "SPEC_HASH",
    "WORKLOAD",
    "Ownership",
    "checked_id",
    "container_name",
    "owner_labels",
    "ownership",
    "refusal",
    "work_labels",
]

MANAGED = "persys.managed"
WORKLOAD = "persys.workload_id"
REVISION = "persys.revision_id"
NODE = "persys.node_id"
CLUSTER = "persys.cluster_id"
SPEC_HASH = "persys.spec_hash"
RUNTIME = "persys.runtime"


class Ownership(StrEnum):
    """Whose an object of the Engine is."""

    OURS = "ours"
    UNMARKED = "unmarked"
    """Made by the reference agent for a workload of this id."""
    FOREIGN = "foreign"


def checked_id(workload_id: WorkloadId) -> WorkloadId:
    """The id, which may name a container and a folder. Raises ``RuntimeFailedError``."""
    if not is_valid_id(workload_id):
        raise RuntimeFailedError(
            FailureCode.INVALID_SPEC, f"{workload_id!r} is no id that a workload may have"
        )
    return workload_id


def container_name(workload_id: WorkloadId) -> str:
    """The name of a workload's container: its id, but the Engine takes no name of one letter."""
    return workload_id if len(workload_id) > 1 else f"{workload_id}_"


def owner_labels(owner: Owner, workload_id: WorkloadId, runtime: str) -> dict[str, str]:
    """What marks everything of a workload, and never changes while it lives."""
    return {
        MANAGED: "true",
        WORKLOAD: workload_id,
        NODE: owner.node_id,
        CLUSTER: owner.cluster_id,
        RUNTIME: runtime,
    }


def work_labels(owner: Owner, order: Order, runtime: str) -> dict[str, str]:
    """What marks a container of one revision."""
    return {
        **owner_labels(owner, order.workload_id, runtime),
        REVISION: order.revision_id,
        SPEC_HASH: order.spec_hash,
    }


def ownership(
    labels: Mapping[str, str], owner: Owner, workload_id: WorkloadId, runtime: str
) -> Ownership:
    """Whose an object with these labels is, asked for this workload of this runtime."""
    if labels.get(MANAGED) != "true" or labels.get(WORKLOAD) != workload_id:
        return Ownership.FOREIGN
    if NODE not in labels:
        return Ownership.UNMARKED
    wanted = (owner.node_id, owner.cluster_id, runtime)
    found = (labels[NODE], labels.get(CLUSTER, ""), labels.get(RUNTIME, runtime))
    return Ownership.OURS if found == wanted else Ownership.FOREIGN


def refusal(name: str, labels: Mapping[str, str], container_id: str = "") -> RuntimeFailedError:
    """Why the name cannot be had, and who has it."""
    identity = f" (id {container_id[:12]})" if container_id else ""
    return RuntimeFailedError(
        FailureCode.NAME_CONFLICT,
        f'the name "{name}" is already in use on this host{identity} by {_holder(labels)};'
        " it is left alone: rename the workload, or remove what holds the name",
    )


def _holder(labels: Mapping[str, str]) -> str:
    if labels.get(MANAGED) != "true":
        return "something that Persys did not make"
    work = f'workload "{labels.get(WORKLOAD, "")}"'
    if NODE not in labels:
        return f"{work} of an agent that does not mark its node"
    cluster = labels.get(CLUSTER, "")
    kind = labels.get(RUNTIME, "")
    return (
        f'{work} of node "{labels[NODE]}"'
        + (f' in cluster "{cluster}"' if cluster else "")
        + (f" ({kind})" if kind else "")
    )
