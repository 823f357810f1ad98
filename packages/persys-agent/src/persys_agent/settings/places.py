"""Where an agent keeps its things, by who runs it.

Decided here: root keeps them in /var/lib/persys and asks the system's libvirt; any other user keeps
them in ``$XDG_STATE_HOME/persys`` (``~/.local/state/persys``) and asks their own. Also the folders
in which the settings file is looked for. Nothing here reads the process's surroundings by itself
except ``here``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

__all__ = ["CONFIG_NAME", "Places", "here"]

CONFIG_NAME = "agent_config.yaml"
_ETC = Path("/etc/persys")


@frozen
class Places:
    """What defaults depend on."""

    data: Path
    libvirt_uri: str
    config_folders: tuple[Path, ...]

    @classmethod
    def of(cls, *, is_root: bool, home: Path, working: Path, xdg_state: str = "") -> Places:
        """The places of a user. A relative ``$XDG_STATE_HOME`` does not count, as its rules say."""
        if is_root:
            return cls(Path("/var/lib/persys"), "qemu:///system", (_ETC, working))
        state = Path(xdg_state) if xdg_state.startswith("/") else home / ".local" / "state"
        return cls(state / "persys", "qemu:///session", (_ETC, home / ".persys", working))


def here(environment: Mapping[str, str]) -> Places:
    """The places of the user that this process runs as."""
    home = environment.get("HOME", "").strip() or os.path.expanduser("~")
    return Places.of(
        is_root=os.geteuid() == 0,
        home=Path(home),
        working=Path.cwd(),
        xdg_state=environment.get("XDG_STATE_HOME", "").strip(),
    )
