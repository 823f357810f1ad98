"""What of a container's spec no Docker Engine can take, said before the spec is accepted.

Decided here: only what the spec alone shows. Whether this node lets it be privileged, has its files
or its image is found out when it is made.
"""

from __future__ import annotations

from persys_agent.runtimes.docker.configuration import (
    environment,
    health_check,
    memory_limit,
    port_bindings,
)
from persys_agent.runtimes.docker.images import pull_policy
from persys_agent.settings.parse import PullPolicy
from persys_core.model.spec import ContainerSpec, WorkloadSpec

__all__ = ["check_container"]


def check_container(spec: WorkloadSpec) -> None:
    """Raises ``RuntimeFailedError`` for what can never be made."""
    pull_policy(spec.metadata, PullPolicy.MISSING)
    memory_limit(spec.resources)
    health_check(spec.metadata)
    if isinstance(spec.body, ContainerSpec):
        environment(spec.body.env)
        port_bindings(spec.body.ports)
