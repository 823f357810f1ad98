"""Where the embedded database lies, and what a replica knows of its cluster."""

from __future__ import annotations

from pathlib import Path

from persys_server.settings import Settings, StoreKind

__all__ = ["database_path", "known_path"]


def database_path(settings: Settings) -> Path:
    """The file of ``PERSYS_STORE=sqlite:PATH``; a relative path counts from PERSYS_DATA_DIR."""
    return Path(settings.data_dir) / settings.store.path


def known_path(settings: Settings) -> Path:
    """The file of a store that lasts. Not beside a database under its name: who removes that must
    not remove this by the way."""
    name = "etcd" if settings.store.kind is StoreKind.ETCD else database_path(settings).stem
    return Path(settings.data_dir) / f"known-{name}.json"
