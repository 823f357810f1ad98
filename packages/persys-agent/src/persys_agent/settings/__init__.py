"""The settings of an agent: what it reads, what each means and what it may hold.

``table`` is the one list; ``load`` reads it from flags, environment and ``file``; ``checks``
compares settings with each other; ``identity`` says who the node is; ``certificates`` reads the
TLS files; ``render`` writes the sample file and the documentation from the table.
"""

from __future__ import annotations

from persys_agent.settings.load import (
    SettingsError,
    load_settings,
    not_acted_on,
    unknown_variables,
)
from persys_agent.settings.parse import (
    Accelerator,
    ContainerNames,
    LogFormat,
    PullPolicy,
    VaultMethod,
)
from persys_agent.settings.places import Places
from persys_agent.settings.table import Group, NodeSettings, Setting, settings_table

__all__ = [
    "Accelerator",
    "ContainerNames",
    "Group",
    "LogFormat",
    "NodeSettings",
    "Places",
    "PullPolicy",
    "Setting",
    "SettingsError",
    "VaultMethod",
    "load_settings",
    "not_acted_on",
    "settings_table",
    "unknown_variables",
]
