"""Where the embedded database lies."""

from __future__ import annotations

from pathlib import Path

from persys_server.settings import Settings

__all__ = ["database_path"]


def database_path(settings: Settings) -> Path:
    """The file of ``PERSYS_STORE=sqlite:PATH``; a relative path counts from PERSYS_DATA_DIR."""
    return Path(settings.data_dir) / settings.store.path
