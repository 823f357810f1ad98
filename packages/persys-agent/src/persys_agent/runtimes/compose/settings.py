"""What the operator of a node decides about its Compose applications."""

from __future__ import annotations

from datetime import timedelta

from attrs import frozen

__all__ = ["ComposeSettings"]


@frozen
class ComposeSettings:
    """How Compose is used.

    ``binary``: the command, such as ``docker compose``; empty for whichever is there.
    ``registry_config``: a ``config.json`` as ``docker login`` writes it, empty for none.
    ``up_timeout``: for a creation, with all of its pulls. ``call_timeout``: for everything else.
    """

    binary: str = ""
    allow_privileged: bool = False
    registry_config: str = ""
    up_timeout: timedelta = timedelta(minutes=15)
    call_timeout: timedelta = timedelta(seconds=60)
    removal_grace: timedelta = timedelta(seconds=10)
    first_sample: timedelta = timedelta(milliseconds=250)
    concurrent_calls: int = 16
