"""The environment: every variable that the server reads, what it means and what it may hold.

``table`` is the one list; ``load`` reads it; ``checks`` compares variables with each other;
``render`` writes ``sample.env`` and the documentation from it.
"""

from __future__ import annotations

from persys_core.model.drift import OrphanPolicy
from persys_core.model.replica import HaMode
from persys_server.settings.load import SettingsError, load_settings
from persys_server.settings.parse import LogFormat, StoreKind, StoreTarget
from persys_server.settings.table import Group, Settings, Variable, variables

__all__ = [
    "Group",
    "HaMode",
    "LogFormat",
    "OrphanPolicy",
    "Settings",
    "SettingsError",
    "StoreKind",
    "StoreTarget",
    "Variable",
    "load_settings",
    "variables",
]
