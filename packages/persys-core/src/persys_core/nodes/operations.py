"""What registration and operators change in a node's record, and what neither may touch.

Decided here: cordon and uncordon, and how a new registration joins the record that exists. A
registration never changes the operator's intent, and an operator never the machine's facts
(decisions §2.9, field report D01). What changes nothing gives back the record that came in, so
that nothing is written. Not decided here: liveness, and what happens to the node's workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from attrs import evolve, frozen

from persys_core.model.ids import NodeId
from persys_core.model.node import Node, OperatorIntent, StoragePool
from persys_core.model.resources import CPU, MEMORY, Resources, unit_of
from persys_core.model.states import WorkloadType
from persys_core.model.workload import Allocation

__all__ = [
    "Refusal",
    "Registration",
    "cordon",
    "overcommitted_dimensions",
    "register",
    "registration_refusal",
    "uncordon",
]


@frozen
class Refusal:
    """A change that the record's present state does not permit: a stable code, and what to do."""

    code: str
    message: str


class Registration(Protocol):
    """What a node says of itself when it registers (``control.requests.RegisterNode``)."""

    @property
    def node_id(self) -> NodeId: ...
    @property
    def capacity(self) -> Resources: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def workload_types(self) -> frozenset[WorkloadType]: ...
    @property
    def reserved(self) -> Resources: ...
    @property
    def storage_drivers(self) -> frozenset[str]: ...
    @property
    def storage_pools(self) -> tuple[StoragePool, ...]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def agent_version(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...


def registration_refusal(request: Registration) -> Refusal | None:
    """Why a node as it presents itself cannot be a member; None where it can."""
    if min(request.capacity.get(CPU), request.capacity.get(MEMORY)) <= 0:
        return Refusal(
            "no_capacity",
            "totalCPU and totalMemory must be positive; the node reports"
            f" {_amount(request.capacity, CPU)} and {_amount(request.capacity, MEMORY)}",
        )
    short = request.reserved.shortfalls(request.capacity)
    if short:
        return Refusal(
            "reserved_above_capacity",
            f"the node reserves more than it has of {', '.join(short)}:"
            f" {_amount(request.reserved, short[0])} of {_amount(request.capacity, short[0])}",
        )
    return None


def register(existing: Node | None, request: Registration, now: datetime) -> Node:
    """The record after a registration; ``existing`` itself where it says nothing new.

    Capacity may shrink below what is committed: the node then gets nothing new, is shown as
    overcommitted, and loses nothing.
    """
    node = Node(
        id=request.node_id,
        capacity=request.capacity,
        endpoint=request.endpoint,
        workload_types=request.workload_types,
        registered_at=existing.registered_at if existing else now,
        reserved=request.reserved,
        storage_drivers=request.storage_drivers,
        storage_pools=request.storage_pools,
        agent_labels=dict(request.labels),
        agent_version=request.agent_version,
        cluster_id=request.cluster_id,
        intent=existing.intent if existing else OperatorIntent(),
        listed_under=existing.listed_under if existing else 0,
    )
    return existing if existing is not None and existing == node else node


def cordon(node: Node, *, reason: str, actor: str, now: datetime) -> Node:
    """Let no new work come to ``node``; what runs there stays. A cordoned node stays as it is."""
    if node.intent.cordoned:
        return node
    return _with_cordon(node, True, reason or "node cordon requested", actor, now)


def uncordon(node: Node, *, reason: str, actor: str, now: datetime) -> Node | Refusal:
    """Let new work come to ``node`` again. Refused while it is being drained."""
    if node.intent.draining:
        return Refusal(
            "draining",
            f'node "{node.id}" is being drained, which keeps new work away by itself;'
            " undrain it to return it to service",
        )
    if not node.intent.cordoned:
        return node
    return _with_cordon(node, False, reason or "node returned to service", actor, now)


def overcommitted_dimensions(node: Node, allocation: Allocation) -> tuple[str, ...]:
    """The dimensions in which more is committed on ``node`` than it can give; mostly none."""
    return allocation.charged.shortfalls(node.allocatable)


def _with_cordon(node: Node, cordoned: bool, reason: str, actor: str, now: datetime) -> Node:
    intent = evolve(node.intent, cordoned=cordoned, reason=reason, changed_by=actor, changed_at=now)
    return evolve(node, intent=intent)


def _amount(resources: Resources, dimension: str) -> str:
    return f"{resources.get(dimension)} {unit_of(dimension)}"
