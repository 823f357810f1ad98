"""What the operator of a node decides about its containers."""

from __future__ import annotations

from datetime import timedelta

from attrs import frozen

from persys_agent.runtimes.docker.execution import STARTS_WITHIN
from persys_agent.settings.parse import ContainerNames, PullPolicy

__all__ = ["DockerSettings"]


@frozen
class DockerSettings:
    """How the Engine is used.

    ``names``: what containers are called (see ``names``).
    ``pull_policy``: of workloads that say nothing of it.
    ``publish_address``: where ports are bound; empty is every address, of IPv6 too.
    ``registry_config``: a ``config.json`` as ``docker login`` writes it, empty for none.
    ``call_timeout``: for one question to the Engine. ``pull_timeout``: for all of one pull.
    ``exec_starts_within``: how long a command may take to begin inside a container.
    ``replace_grace``: how long an outdated container may take to end.
    ``first_sample``: between the two samples of a container that was not measured before.
    """

    names: ContainerNames = ContainerNames.WORKLOAD
    pull_policy: PullPolicy = PullPolicy.MISSING
    allow_privileged: bool = False
    publish_address: str = "0.0.0.0"
    registry_config: str = ""
    call_timeout: timedelta = timedelta(seconds=30)
    pull_timeout: timedelta = timedelta(minutes=10)
    exec_starts_within: timedelta = STARTS_WITHIN
    replace_grace: timedelta = timedelta(seconds=10)
    first_sample: timedelta = timedelta(milliseconds=250)
    concurrent_calls: int = 16
