"""What registration and operators change in a node's record, and what neither may touch.

Decided here: cordon and uncordon, how a new registration joins the record that exists, and that an
agent which still beats loses its node id to no other one. A
registration never changes the operator's intent, and an operator never the machine's facts
(decisions §2.9, field report D01). What changes nothing gives back the record that came in, so
that nothing is written. Not decided here: liveness, and what happens to the node's workloads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from attrs import evolve, frozen

from persys_core.model.ids import NodeId
from persys_core.model.node import DrainOrder, Node, OperatorIntent, StoragePool, Taint
from persys_core.model.resources import CPU, MEMORY, Resources, unit_of
from persys_core.model.states import TaintEffect, WorkloadType
from persys_core.model.workload import Allocation

__all__ = [
    "MAX_OPERATOR_LABELS",
    "MAX_TAINTS",
    "Refusal",
    "Registration",
    "cordon",
    "delete_label",
    "drain",
    "holder_refusal",
    "overcommitted_dimensions",
    "register",
    "registration_refusal",
    "set_label",
    "taint",
    "uncordon",
    "undrain",
    "untaint",
]


MAX_TAINTS = 64
MAX_OPERATOR_LABELS = 256
"""Of one node: its record is read and compared at every placement there."""


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
    @property
    def stop_after_seconds(self) -> int: ...
    @property
    def boot_id(self) -> str: ...


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


def holder_refusal(
    existing: Node | None,
    request: Registration,
    *,
    alive: bool,
    ended_boots: Collection[str],
    lease: timedelta,
) -> Refusal | None:
    """Why the node id stays with the agent that has it; None where the new one may have it.

    A restart has another boot id at the same endpoint and is let in, as is whoever comes when the
    holder was silent for its lease. ``ended_boots``: one that a later start at its own endpoint
    replaced and that comes back is no restart: two agents say that they listen there. Where either
    says no boot id, as the agents in the field, nothing can be told and the newest gets the id.
    """
    if existing is None or not alive or request.boot_id == existing.boot_id:
        return None
    if not (request.boot_id and existing.boot_id):
        return None
    if request.endpoint == existing.endpoint and request.boot_id not in ended_boots:
        return None
    return Refusal("node_id_taken", _taken(existing, request, lease))


def _taken(holder: Node, request: Registration, lease: timedelta) -> str:
    """Who has the id, and what to do. Removing the node is no advice: it would move the work of
    the one that has it rightly."""
    if request.endpoint == holder.endpoint:
        whose = (
            f'node id "{holder.id}" belongs to an agent that also says {holder.endpoint}, was'
            " started later than this one and still sends heartbeats: two machines have one id and"
            " endpoint"
        )
    else:
        whose = (
            f'node id "{holder.id}" belongs to the agent at {holder.endpoint}, whose heartbeats'
            f" still arrive; it is not given to another one, at {request.endpoint}"
        )
    return (
        f"{whose}. Give one of them another node_id (PERSYS_NODE_ID). If this one is the right one,"
        f" stop the other one first: this one then gets in by itself {lease.total_seconds():g} s"
        " after the other's last heartbeat. Nothing needs to be removed for that"
    )


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
        stop_after_seconds=request.stop_after_seconds,
        boot_id=request.boot_id,
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


def drain(node: Node, order: DrainOrder, *, reason: str, actor: str) -> Node:
    """Have everything leave ``node``. A second drain replaces deadline and force of the first,
    and keeps when it began."""
    began = node.intent.drain
    if began is not None:
        order = evolve(order, started_at=began.started_at, workloads=began.workloads)
    return _changed(
        node, reason or "node drain requested", actor, order.started_at,
        draining=True, drain=order,
    )  # fmt: skip


def undrain(node: Node, *, reason: str, actor: str, now: datetime) -> Node:
    """Return ``node`` to service: the drain and a cordon end. What has left does not come back."""
    if not (node.intent.draining or node.intent.cordoned):
        return node
    return _changed(
        node, reason or "node returned to service", actor, now,
        draining=False, cordoned=False, drain=None,
    )  # fmt: skip


def taint(node: Node, mark: Taint, *, reason: str, actor: str, now: datetime) -> Node | Refusal:
    """Mark ``node``; a taint of the same key and effect is replaced."""
    if mark in node.intent.taints:
        return node
    others = [each for each in node.intent.taints if (each.key, each.effect) != _identity(mark)]
    if len(others) >= MAX_TAINTS:
        return _too_many(node, "taints", MAX_TAINTS)
    told = reason or f"taint {mark} set"
    return _changed(node, told, actor, now, taints=(*others, mark))


def untaint(
    node: Node, key: str, effect: TaintEffect | None, *, reason: str, actor: str, now: datetime
) -> Node:
    """Take the taint of this key and effect away; without an effect, all of this key."""
    kept = tuple(
        each for each in node.intent.taints if each.key != key or effect not in (None, each.effect)
    )
    if kept == node.intent.taints:
        return node
    return _changed(node, reason or "taint removed", actor, now, taints=kept)


def set_label(node: Node, key: str, value: str, *, actor: str, now: datetime) -> Node | Refusal:
    """Set an operator's label; it wins over the agent's of the same key."""
    if node.intent.labels.get(key) == value:
        return node
    if key not in node.intent.labels and len(node.intent.labels) >= MAX_OPERATOR_LABELS:
        return _too_many(node, "operator labels", MAX_OPERATOR_LABELS)
    return _changed(node, f"label {key} set", actor, now, labels={**node.intent.labels, key: value})


def delete_label(node: Node, key: str, *, actor: str, now: datetime) -> Node | Refusal:
    """Take an operator's label away; the agent's own labels are the agent's to change."""
    if key not in node.intent.labels:
        if key in node.agent_labels:
            return Refusal(
                "agent_label",
                f'label "{key}" of node "{node.id}" is set by its agent; change the agent\'s'
                " configuration, or set an operator label of that key to override it",
            )
        return node
    kept = {name: value for name, value in node.intent.labels.items() if name != key}
    return _changed(node, f"label {key} deleted", actor, now, labels=kept)


def overcommitted_dimensions(node: Node, allocation: Allocation) -> tuple[str, ...]:
    """The dimensions in which more is committed on ``node`` than it can give; mostly none."""
    return allocation.charged.shortfalls(node.allocatable)


def _too_many(node: Node, what: str, most: int) -> Refusal:
    return Refusal(
        f"too_many_{what.rsplit(maxsplit=1)[-1]}",
        f'node "{node.id}" has {most} {what}, which is the most that a node may have;'
        " take one away that is not needed any more",
    )


def _with_cordon(node: Node, cordoned: bool, reason: str, actor: str, now: datetime) -> Node:
    return _changed(node, reason, actor, now, cordoned=cordoned)


def _changed(node: Node, reason: str, actor: str, now: datetime, **changes: Any) -> Node:
    intent = evolve(node.intent, reason=reason, changed_by=actor, changed_at=now, **changes)
    return evolve(node, intent=intent)


def _identity(mark: Taint) -> tuple[str, TaintEffect]:
    return mark.key, mark.effect


def _amount(resources: Resources, dimension: str) -> str:
    return f"{resources.get(dimension)} {unit_of(dimension)}"
