"""How large a request may be. One place, so that the documentation and the tests read it too."""

from __future__ import annotations

__all__ = [
    "MAX_COMMAND_WORDS",
    "MAX_COMPOSE_BYTES",
    "MAX_DISKS",
    "MAX_DRAIN_SECONDS",
    "MAX_ENV",
    "MAX_IMPORT_NODES",
    "MAX_LABELS",
    "MAX_MANAGED_VOLUMES",
    "MAX_MESSAGE_BYTES",
    "MAX_METADATA",
    "MAX_NETWORKS",
    "MAX_POOLS",
    "MAX_PORTS",
    "MAX_SPEC_BYTES",
    "MAX_TEXT",
    "MAX_VOLUMES",
]

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_SPEC_BYTES = 1024 * 1024
MAX_COMPOSE_BYTES = 256 * 1024
MAX_TEXT = 64 * 1024
"""Characters of one environment value, command word, metadata value or cloud-init text."""
MAX_COMMAND_WORDS = 1000
MAX_ENV = 1000
MAX_METADATA = 256
MAX_LABELS = 256
MAX_PORTS = 256
MAX_VOLUMES = 128
MAX_MANAGED_VOLUMES = 24
"""One commit touches the record of each (decisions, commits)."""
MAX_DISKS = 24
MAX_NETWORKS = 16
MAX_POOLS = 64
MAX_IMPORT_NODES = 10_000
MAX_DRAIN_SECONDS = 365 * 24 * 3600
"""Of a drain's deadline; what is beyond is a mistake of unit."""
