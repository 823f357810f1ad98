"""``Membership``: how this node stands with the scheduler, for whoever asks how the agent is."""

from __future__ import annotations

from attrs import define

__all__ = ["Membership"]


@define
class Membership:
    """``problem`` says why the scheduler cannot be told of this node, and is empty while all is
    well. ``refusal`` is what only people can mend: another agent has the node id."""

    problem: str = ""
    refusal: str = ""
