"""Who this node is: its id, its labels, and the endpoint that the scheduler is told.

Decided here: the rules, as pure functions of what ``persys_agent.host.facts`` finds. They give what
agents in the field give on the same machine, so that a node keeps its id when its agent is
replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address

from persys_agent.settings.table import NodeSettings
from persys_core.model.ids import MAX_ID_LENGTH, NodeId

__all__ = ["advertised_endpoint", "bracketed", "chosen_node_id", "host_and_port", "node_labels"]

_MACHINE_ID_LENGTH = 12
_NOT_OF_AN_ID = re.compile(r"[^A-Za-z0-9._-]+")
_EVERYWHERE = frozenset({"", "0.0.0.0", "::", "localhost"})


def chosen_node_id(configured: str, hostname: str, machine_id: str, mac: str) -> NodeId:
    """``configured``, else ``<hostname>-<12 of the machine id>``, else with 12 hex digits of the
    network card's address, else the host name."""
    if configured:
        return configured
    host = _NOT_OF_AN_ID.sub("-", hostname.strip()).strip("-._") or "node"
    machine = machine_id.strip().lower()[:_MACHINE_ID_LENGTH]
    if not machine and mac:
        machine = hashlib.sha256(mac.encode()).hexdigest()[:_MACHINE_ID_LENGTH]
    if not machine:
        return host[:MAX_ID_LENGTH]
    return f"{host[: MAX_ID_LENGTH - len(machine) - 1]}-{machine}"


def node_labels(settings: NodeSettings, system: str, architecture: str) -> Mapping[str, str]:
    """The user's labels; ``os`` and ``arch`` where absent; region and environment win over them."""
    labels = {"os": system, "arch": architecture, **dict(settings.node_labels)}
    if settings.node_region:
        labels["region"] = settings.node_region
    if settings.node_env:
        labels["env"] = settings.node_env
    return labels


def advertised_endpoint(
    settings: NodeSettings, bound_port: int, towards_scheduler: str, interfaces: Iterable[str]
) -> str:
    """``agent_grpc_endpoint``, else the address that is listened on, else this machine's towards
    the scheduler, else its first, else the loopback.

    ``towards_scheduler`` is the local address that packets to the scheduler leave from (empty where
    there is none); one that others cannot reach does not count.
    """
    if settings.agent_grpc_endpoint:
        return settings.agent_grpc_endpoint
    if settings.grpc_addr not in _EVERYWHERE:
        return host_and_port(settings.grpc_addr, bound_port)
    found = towards_scheduler if _is_reachable(towards_scheduler) else _first(interfaces)
    return host_and_port(found or "127.0.0.1", bound_port)


def host_and_port(host: str, port: int) -> str:
    """The two as one text."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """A host as it stands before a colon: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _first(interfaces: Iterable[str]) -> str:
    """IPv4 goes first."""
    usable = sorted(filter(_is_reachable, interfaces), key=lambda each: ":" in each)
    return usable[0] if usable else ""


def _is_reachable(text: str) -> bool:
    found = _parsed(text)
    return found is not None and not (
        found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    )


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
