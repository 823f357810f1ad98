"""The stored shape of a node, and what a node of the reference means in our words."""

from __future__ import annotations

from datetime import datetime

from attrs import field, frozen

from persys_adapters.records.json_values import (
    EPOCH,
    JsonObject,
    from_json,
    instant,
    only_read,
    to_json,
)
from persys_core.model.node import Node, OperatorIntent, Taint
from persys_core.model.resources import Resources
from persys_core.model.states import NodeStatus, TaintEffect, WorkloadType

__all__ = ["StoredNode", "node_from", "node_json"]

_DRAINING = {"draining", "drained"}
_ACTIVE = {"active", "ready"}


@frozen
class StoredTaint:
    """A taint; an empty effect is NoSchedule."""

    key: str
    value: str = ""
    effect: str = ""


@frozen
class StoredHypervisor:
    """What the reference knows of virtual machines on a node."""

    type: str = ""
    status: str = ""
    version: str = ""


@frozen
class StoredNode:
    """``/nodes/{id}`` for the reference: cpu in cores, memory in MB, labels as selectors see them.

    A node of ours stands whole under ``persys`` beside it.
    """

    node_id: str = ""
    status: str = ""
    total_cpu: float = 0.0
    total_memory: int = 0
    labels: dict[str, str] = field(factory=dict)
    agent_endpoint: str = ""
    supported_workload_types: list[str] = field(factory=list)
    supported_storage_drivers: list[str] = field(factory=list)
    taints: list[StoredTaint] = field(factory=list)
    ip_address: str = field(default="", metadata=only_read())
    agent_port: int = field(default=0, metadata=only_read())
    agent_grpc_port: int = field(default=0, metadata=only_read())
    timestamp: str = field(default="", metadata=only_read())
    hypervisor: StoredHypervisor = field(default=StoredHypervisor(), metadata=only_read())


def node_json(node: Node) -> JsonObject:
    """``node`` as the reference would show it, and as it is under ``persys``."""
    shown = StoredNode(
        node_id=node.id,
        status=NodeStatus.DRAINING if node.intent.draining else NodeStatus.READY,
        total_cpu=node.capacity.cpu_millicores / 1000,
        total_memory=node.capacity.memory_mb,
        labels=node.labels,
        agent_endpoint=node.endpoint,
        supported_workload_types=sorted(node.workload_types),
        supported_storage_drivers=sorted(node.storage_drivers),
        taints=[StoredTaint(taint.key, taint.value, taint.effect) for taint in node.intent.taints],
    )
    return {**to_json(shown), "persys": to_json(node)}


def node_from(value: JsonObject) -> Node:
    """The node in ``value``; one that the reference wrote gets sensible defaults."""
    if "persys" in value:
        return from_json(value["persys"], Node)
    return _adopted(from_json(value, StoredNode))


def _adopted(stored: StoredNode) -> Node:
    cpu_millicores = round(stored.total_cpu * 1000)
    return Node(
        id=stored.node_id,
        capacity=Resources.of(cpu_millicores=cpu_millicores, memory_mb=stored.total_memory),
        endpoint=stored.agent_endpoint or _endpoint(stored),
        workload_types=_workload_types(stored) or _assumed_types(stored.hypervisor),
        registered_at=_registered_at(stored.timestamp),
        storage_drivers=frozenset({"local", *stored.supported_storage_drivers}),
        agent_labels=stored.labels,
        intent=OperatorIntent(draining=stored.status.lower() in _DRAINING, taints=_taints(stored)),
    )


def _registered_at(timestamp: str) -> datetime:
    """The reference keeps the text of the request, which may be anything."""
    try:
        return instant(timestamp) or EPOCH
    except ValueError:
        return EPOCH


def _endpoint(stored: StoredNode) -> str:
    port = stored.agent_grpc_port or stored.agent_port
    return f"{stored.ip_address}:{port}" if stored.ip_address and port else ""


def _workload_types(stored: StoredNode) -> frozenset[WorkloadType]:
    """The kinds that we know; a node may advertise others, which nothing is placed for."""
    named = {text.lower() for text in stored.supported_workload_types}
    return frozenset(kind for kind in WorkloadType if kind in named)


def _assumed_types(hypervisor: StoredHypervisor) -> frozenset[WorkloadType]:
    """A node that names no kinds runs containers, and machines where it has a hypervisor."""
    assumed = {WorkloadType.CONTAINER, WorkloadType.COMPOSE}
    if hypervisor.type or hypervisor.status.lower() in _ACTIVE:
        assumed.add(WorkloadType.VM)
    return frozenset(assumed)


def _taints(stored: StoredNode) -> tuple[Taint, ...]:
    """The taints whose effect we know; one without an effect is NoSchedule."""
    effects = set(TaintEffect)
    return tuple(
        Taint(taint.key, taint.value, TaintEffect(taint.effect or TaintEffect.NO_SCHEDULE))
        for taint in stored.taints
        if not taint.effect or taint.effect in effects
    )
