"""Where clients are told to reach this replica.

Decided here: what is told where the operator says nothing. An address that listens everywhere is
none to connect to, so the machine's name stands for it.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address

from persys_server.settings import Settings

__all__ = ["advertised"]


def advertised(settings: Settings) -> str:
    """``host:port`` of this replica's gRPC API; an IPv6 address stands in brackets."""
    host = settings.advertise_ip or _reachable(settings.grpc_addr)
    port = settings.advertise_port or settings.grpc_port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(listening: str) -> str:
    try:
        everywhere = not listening or ip_address(listening.strip("[]")).is_unspecified
    except ValueError:
        return listening
    return socket.gethostname() if everywhere else listening.strip("[]")
