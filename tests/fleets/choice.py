"""The one parameter: `--agents simulated` or `--agents docker`, for every suite that has agents.

Decided here: that the daemons and their images are shared by all tests of a process. A test that
needs what only simulated agents have says so with ``@pytest.mark.simulated("why")`` and is skipped
with Docker; the summary counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from urllib.parse import urlencode

from attrs import define, field

from tests.servers.dockerd import Dockerd, run_dockerd

__all__ = ["CHOSEN", "AgentChoice", "Chosen"]

IMAGES = ("nginx", "nginx:1.27", "postgres:16", "one", "two", "slow")
"""The names that the suites' specs use."""
_WAITS = """ENTRYPOINT ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]"""
_BASE = "local/waits:1"


class AgentChoice(StrEnum):
    """What the suites' agents are."""

    SIMULATED = "simulated"
    DOCKER = "docker"


@define
class Chosen:
    """The choice that holds now, and the daemons that were started for it."""

    agents: AgentChoice = AgentChoice.SIMULATED
    _stack: ExitStack = field(factory=ExitStack)
    _daemons: list[Dockerd] = field(factory=list)

    def daemons(self, count: int) -> Sequence[Dockerd]:
        """So many, with the images; they are shared."""
        while len(self._daemons) < count:
            daemon = self._stack.enter_context(run_dockerd())
            daemon.import_image(_BASE, _WAITS)
            for image in IMAGES:
                name, _, tag = image.partition(":")
                names = urlencode({"repo": name, "tag": tag or "latest"})
                daemon.ask("POST", f"/images/{_BASE}/tag?{names}")
            self._daemons.append(daemon)
        return self._daemons[:count]

    def close(self) -> None:
        """End the daemons."""
        self._stack.close()
        self._daemons.clear()


CHOSEN = Chosen()
