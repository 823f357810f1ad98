"""What a demonstration stands on: its folder, its settings and its ports.

Decided here: short intervals, so that things can be watched happening; only this machine is
listened to; nothing is left behind unless a folder was named. Variables of the environment win
over these defaults.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import evolve, frozen

from persys_server.settings import Settings, load_settings

__all__ = [
    "LOG_NAME",
    "Folder",
    "Ports",
    "data_folder",
    "demo_settings",
    "is_free",
    "stderr_into",
    "with_any_ports",
]

LOG_NAME = "server.log"
_LOOPBACK = "127.0.0.1"
_DEFAULTS = {
    "PERSYS_GRPC_ADDR": _LOOPBACK,
    "PERSYS_STORE": "sqlite:state.db",
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "5s",
    "SCHEDULER_RECONCILE_INTERVAL": "1s",
    "SCHEDULER_LEADER_TTL": "5s",
    "SCHEDULER_AGENT_RPC_TIMEOUT": "3s",
    "SCHEDULER_REAPPLY_GUARD": "15s",
    "SCHEDULER_MISSING_GRACE_PERIOD": "3s",
}


@frozen
class Folder:
    """Where state and log of the demonstration lie; ``kept`` says whether they stay."""

    path: Path
    kept: bool

    @property
    def log(self) -> Path:
        """The file that all log lines go to."""
        return self.path / LOG_NAME


@frozen
class Ports:
    """The ports asked for on the command line; ``None`` where none was."""

    grpc: int | None = None
    metrics: int | None = None


@contextmanager
def data_folder(named: str) -> Iterator[Folder]:
    """The folder ``named``, made if need be; where none is named, a new one that ends with this.

    Raises ``OSError`` where it cannot be made.
    """
    if named:
        path = Path(named)
        path.mkdir(parents=True, exist_ok=True)
        yield Folder(path.resolve(), kept=True)
        return
    with tempfile.TemporaryDirectory(prefix="persys-dev-", ignore_cleanup_errors=True) as made:
        yield Folder(Path(made), kept=False)


def demo_settings(environment: Mapping[str, str], folder: Folder, ports: Ports) -> Settings:
    """The server's settings; a port that nobody named is the usual one, or 0 where it is taken.

    Raises ``SettingsError``.
    """
    given = {name: value for name, value in environment.items() if value.strip()}
    settings = load_settings({**_DEFAULTS, **given, "PERSYS_DATA_DIR": str(folder.path)})
    usual = evolve(
        settings,
        grpc_port=ports.grpc or settings.grpc_port,
        metrics_port=ports.metrics or settings.metrics_port,
    )
    if all(is_free(usual.grpc_addr, port) for port in (usual.grpc_port, usual.metrics_port)):
        return usual
    return with_any_ports(usual, environment, ports)


def with_any_ports(settings: Settings, environment: Mapping[str, str], ports: Ports) -> Settings:
    """The same with 0, any free port, for each one that nobody named."""
    grpc_named = ports.grpc or environment.get("GRPC_PORT", "").strip()
    metrics_named = ports.metrics or environment.get("METRICS_PORT", "").strip()
    return evolve(
        settings,
        grpc_port=settings.grpc_port if grpc_named else 0,
        metrics_port=settings.metrics_port if metrics_named else 0,
    )


def is_free(host: str, port: int) -> bool:
    """Whether a port could be listened on now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


@contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Send what libraries write to the process's standard error to a file: it would spoil the view.

    The descriptor is changed, since gRPC's core does not write through Python.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
