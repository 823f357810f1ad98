"""Requests about nodes: registration, heartbeats and reads.

Decided here: a registration is checked like any input. A heartbeat is an observation: only who
sends it must be right. A measurement or state in it that makes no sense is left out, since
refusing the beat would turn a live node into a dead one (decisions, 2.8).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite

from attrs import evolve

from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.event import capped
from persys_core.model.ids import StoreRevision
from persys_core.model.node import StoragePool, capacity_of
from persys_core.model.observation import AgentReport, AgentState
from persys_core.model.resources import CPU, DISK, MAX_AMOUNT, MEMORY, Resources, unit_of
from persys_core.model.usage import NodeUsage, WorkloadUsage
from persys_proto.control.v1 import control_pb2 as pb
from persys_server.grpc.mapping.common_in import DRIVERS, WORKLOAD_TYPES, labels_of
from persys_server.grpc.mapping.fields import Fields, quoted
from persys_server.grpc.mapping.limits import MAX_POOLS
from persys_server.grpc.mapping.times import instant

__all__ = ["heartbeat", "list_filters", "read_node", "register_node"]

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_STATES = {str(state).lower(): state for state in AgentState}
_POOL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}\Z")
_MAX_MESSAGE_BYTES = 4096
_LONGEST_STOP_AFTER = 7 * 86_400
_STORAGE_LABEL = "storage."


def register_node(message: pb.RegisterNodeRequest) -> RegisterNode:
    """A node's presentation; raises ``InvalidInputError`` that names every wrong field.

    Types and drivers that this release does not know are left out: a newer agent may join.
    """
    fields = Fields()
    can = message.capabilities
    place = fields.inside("capabilities")
    pools = _pools(place, can.storage_pools)
    labels = labels_of(fields, "labels", message.labels)
    request = RegisterNode(
        node_id=fields.new_id("node_id", message.node_id),
        capacity=capacity_of(*_totals(place, can), pools),
        endpoint=_endpoint(fields, message.grpc_endpoint),
        workload_types=frozenset(
            WORKLOAD_TYPES[kind]
            for kind in (given.strip().lower() for given in can.supported_workload_types)
            if kind in WORKLOAD_TYPES
        ),
        storage_drivers=_drivers(can.supported_storage_drivers, labels),
        storage_pools=pools,
        labels=labels,
        agent_version=fields.text("agent_version", message.agent_version, at_most=253),
        cluster_id=fields.text("cluster_id", message.cluster_id, at_most=253),
        stop_after_seconds=fields.amount(
            "stop_after_seconds", message.stop_after_seconds, _LONGEST_STOP_AFTER, "s"
        ),
        boot_id=fields.text("boot_id", message.boot_id, at_most=253),
    )
    reserved = _reserved(place, can.reserved, request.capacity)
    fields.finish()
    return evolve(request, reserved=reserved)


def heartbeat(message: pb.HeartbeatRequest, now: datetime) -> Heartbeat:
    """A beat; ``now`` is when it came in and dates measurements that carry no time."""
    fields = Fields()
    node_id = fields.existing_id("node_id", message.node_id)
    if bool(message.boot_id) != bool(message.sequence):
        missing = "sequence" if message.boot_id else "boot_id"
        fields.add(missing, "boot_id and sequence are sent together or not at all")
    fields.text("boot_id", message.boot_id, at_most=253)
    fields.finish()
    return Heartbeat(
        node_id=node_id,
        reports=tuple(_report(s) for s in message.workload_statuses if s.workload_id.strip()),
        usage=_node_usage(message, now),
        workload_usage=tuple(_usages(message, now)),
        boot_id=message.boot_id,
        sequence=message.sequence,
        sent_at=instant(message.timestamp),
    )


def read_node(message: pb.GetNodeRequest) -> tuple[str, StoreRevision]:
    """Which node to show, and how new at least."""
    fields = Fields()
    fields.existing_id("node_id", message.node_id)
    fields.amount("min_revision", message.min_revision, 2**63 - 1, "")
    fields.finish()
    return message.node_id, message.min_revision


def list_filters(
    min_revision: int, words: Mapping[str, tuple[str, Iterable[str]]], node_id: str = ""
) -> None:
    """Checks the filters of a list: each word must be one that the list can hold."""
    fields = Fields()
    fields.amount("min_revision", min_revision, 2**63 - 1, "")
    fields.text("node_id", node_id)
    for name, (given, known) in words.items():
        fields.word(name, given, {word.lower(): word for word in known}, "")
    fields.finish()


def _totals(fields: Fields, can: pb.NodeCapabilities) -> tuple[int, int]:
    totals = (
        ("cpu_total_millicores", can.cpu_total_millicores, CPU),
        ("memory_total_mb", can.memory_total_mb, MEMORY),
    )
    for name, value, dimension in totals:
        if value <= 0:
            fields.add(name, f"{value} is not valid; totalCPU and totalMemory must be positive")
        elif value > MAX_AMOUNT[dimension]:
            fields.add(
                name,
                f"{value} is more than the accepted {MAX_AMOUNT[dimension]} {unit_of(dimension)};"
                " check the unit",
            )
    return can.cpu_total_millicores, can.memory_total_mb


def _pools(fields: Fields, messages: Iterable[pb.StoragePool]) -> tuple[StoragePool, ...]:
    pools = []
    for index, message in enumerate(messages):
        place = fields.item("storage_pools", index)
        if not _POOL_NAME.match(message.name):
            place.add("name", f"{quoted(message.name)} is not a pool's name")
        total = place.amount("total_gb", message.total_gb, MAX_AMOUNT[DISK], "GB")
        kind = place.text("type", message.type.strip().lower(), at_most=64) or "local"
        pools.append(StoragePool(message.name, kind, total))
    fields.count("storage_pools", len(pools), MAX_POOLS)
    fields.inside("storage_pools").unique("name", [pool.name for pool in pools], "pool")
    return tuple(pools)


def _drivers(given: Iterable[str], labels: Mapping[str, str]) -> frozenset[str]:
    by_label = (
        key.removeprefix(_STORAGE_LABEL)
        for key, value in labels.items()
        if key.startswith(_STORAGE_LABEL) and value.strip().lower() == "true"
    )
    named = (name.strip().lower() for name in (*given, *by_label))
    return frozenset(DRIVERS[name] for name in named if name in DRIVERS) | {"local"}


def _reserved(
    fields: Fields, messages: Iterable[pb.ResourceAmount], capacity: Resources
) -> Resources:
    amounts: dict[str, int] = {}
    for index, message in enumerate(messages):
        place = fields.item("reserved", index)
        if message.name not in capacity.amounts or message.name in amounts:
            place.add("name", f"{quoted(message.name)} is not a resource of this node, or a second"
                      f" time; accepted are {', '.join(capacity.amounts)}")  # fmt: skip
            continue
        unit = unit_of(message.name)
        if message.unit not in ("", unit):
            place.add("unit", f"{quoted(message.unit)} is not valid; accepted is {unit}")
        amounts[message.name] = place.amount(
            "amount", message.amount, max(0, capacity.get(message.name)), unit
        )
    return Resources(amounts)


def _endpoint(fields: Fields, given: str) -> str:
    """``host:port``, an IPv6 host in brackets; an empty host is this machine, as ever."""
    text = given.strip()
    if not text:
        fields.add("grpc_endpoint", "grpc_endpoint is required")
        return ""
    host, colon, port = text.rpartition(":")
    problem = _endpoint_problem(host, colon, port)
    if problem:
        fields.add("grpc_endpoint", f"invalid grpc_endpoint {quoted(given)}: {problem}")
        return ""
    bare = host.strip("[]") or "127.0.0.1"
    return f"[{bare}]:{int(port)}" if ":" in bare else f"{bare}:{int(port)}"


def _endpoint_problem(host: str, colon: str, port: str) -> str:
    if not colon:
        return "it names no port; accepted is host:port"
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        return "the port is not a number from 1 to 65535"
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare:
        return "" if _is_ipv6(bare) else "the host is not an IPv6 address"
    if bare and not _HOST.match(bare):
        return "the host is not a name or an address"
    return ""


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _report(status: pb.WorkloadStatus) -> AgentReport:
    return AgentReport(
        workload_id=status.workload_id,
        state=_STATES.get(status.state.strip().lower(), AgentState.UNKNOWN),
        revision_id=status.revision_id,
        message=capped(status.message or status.reason.message, _MAX_MESSAGE_BYTES),
        failure_code=_failure_code(status),
        reported_at=instant(status.last_transition),
        metadata=_report_metadata(status),
    )


def _failure_code(status: pb.WorkloadStatus) -> str:
    """The reason's own code; the enum counts only where it says more than "it failed"."""
    if status.reason.code:
        return capped(status.reason.code, 128)
    if status.failure_reason in (pb.FAILURE_REASON_UNSPECIFIED, pb.RUNTIME_ERROR):
        return ""
    known = pb.FailureReason.values()
    return pb.FailureReason.Name(status.failure_reason) if status.failure_reason in known else ""


def _report_metadata(status: pb.WorkloadStatus) -> dict[str, str]:
    found = {
        "failure_reason": capped(status.reason.code, 128),
        "failure_message": capped(status.reason.message, _MAX_MESSAGE_BYTES),
    }
    return {key: value for key, value in found.items() if value}


def _node_usage(message: pb.HeartbeatRequest, now: datetime) -> NodeUsage | None:
    used = message.usage
    amounts = {
        CPU: used.cpu_used_millicores, MEMORY: used.memory_used_mb, DISK: used.disk_used_gb,
    }  # fmt: skip
    sane = all(0 <= amount <= MAX_AMOUNT[name] for name, amount in amounts.items())
    if not message.HasField("usage") or not sane:
        return None
    return NodeUsage(message.node_id, Resources(amounts), now)


def _usages(message: pb.HeartbeatRequest, now: datetime) -> Iterable[WorkloadUsage]:
    """The snapshots of both lists, one per workload; the list made for them wins."""
    found: dict[str, pb.WorkloadUsageSnapshot] = {}
    for status in message.workload_statuses:
        if status.HasField("usage"):
            found[status.workload_id or status.usage.workload_id] = status.usage
    found.update({usage.workload_id: usage for usage in message.workload_usage})
    for workload_id, usage in found.items():
        if workload_id.strip() and _is_sane(usage):
            yield _workload_usage(workload_id, message.node_id, usage, now)


def _is_sane(usage: pb.WorkloadUsageSnapshot) -> bool:
    counters = (
        usage.memory_bytes, usage.disk_read_bytes, usage.disk_write_bytes, usage.net_rx_bytes,
        usage.net_tx_bytes,
    )  # fmt: skip
    return isfinite(usage.cpu_percent) and usage.cpu_percent >= 0 and min(counters) >= 0


def _workload_usage(
    workload_id: str, node_id: str, usage: pb.WorkloadUsageSnapshot, now: datetime
) -> WorkloadUsage:
    return WorkloadUsage(
        workload_id=workload_id,
        node_id=node_id,
        type=capped(usage.type.strip().lower(), 64),
        cpu_percent=usage.cpu_percent,
        memory_bytes=usage.memory_bytes,
        disk_read_bytes=usage.disk_read_bytes,
        disk_write_bytes=usage.disk_write_bytes,
        net_rx_bytes=usage.net_rx_bytes,
        net_tx_bytes=usage.net_tx_bytes,
        collected_at=instant(usage.collected_at) or now,
        source=capped(usage.source, 128),
    )
