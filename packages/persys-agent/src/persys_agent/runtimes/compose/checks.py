"""What of an application's spec no Docker Engine can take, said before the spec is accepted.

Decided here: only what stands beside the Compose file. The file itself is read when the application
is made, as what it may have is the node's to say.
"""

from __future__ import annotations

from persys_agent.runtimes.docker.configuration import memory_limit
from persys_agent.runtimes.docker.images import pull_policy
from persys_agent.settings.parse import PullPolicy
from persys_core.model.spec import WorkloadSpec

__all__ = ["check_application"]


def check_application(spec: WorkloadSpec) -> None:
    """Raises ``RuntimeFailedError`` for what can never be made."""
    pull_policy(spec.metadata, PullPolicy.MISSING)
    memory_limit(spec.resources)
