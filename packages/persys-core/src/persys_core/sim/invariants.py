"""The safety rules as checkers: what they are told, what they answer, and which ones there are.

Decided here: the numbering of the rules (those of docs/simulator.md) and the order of checking.
Each checker is a pure function over a ``Scene``; it yields a ``Finding`` for each violation and
nothing where all is well. ``watcher`` calls them: the quick ones at every commit and every call,
the full ones once per simulated minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

from attrs import define, field, frozen

from persys_core.control.config import SchedulerConfig
from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.spec import WorkloadSpec
from persys_core.model.volume import VolumeId
from persys_core.ports.liveness import Liveness
from persys_core.sim.mirror import Mirror, Step
from persys_core.sim.wishes import Wishes

__all__ = ["CommitRule", "Finding", "FullRule", "Rule", "Scene"]


class Rule(StrEnum):
    """The safety rules, and the health of the run itself."""

    CAPACITY = "1-capacity"
    ONE_COPY = "2-one-copy"
    INTENT = "3-intent-before-call"
    PATIENCE = "4-no-early-retry"
    LEDGER = "5-ledger-is-the-sum"
    NOTHING_LOST = "6-nothing-lost"
    NO_STRAY_STOP = "7-no-stray-stop"
    LIVENESS = "8-liveness"
    STEADY = "9-steady-is-silent"
    NO_BUGS = "10-no-bugs"
    EVICTIONS = "11-evictions"
    ONE_OWNER = "12-one-owner"


@frozen
class Finding:
    """One violation: the rule, what is wrong, and the ids it is about."""

    rule: Rule
    text: str
    subjects: tuple[str, ...]


@define(eq=False)
class Scene:
    """Everything that a checker may look at.

    ``was_lost_at``: when a node that had been lost was last heard again. ``running``: what really
    runs on each machine, as far as the journals were read; ``ended_at``: when it last stopped
    doing so. ``listings``: how often in a row each node said that it has what is neither assigned
    to it nor owed there. ``exits``: the (node, workload, revision) that once ended with code 0.
    ``strays``: the (node, workload) at which a message arrived that nobody waited for any more;
    agents cannot tell such a message from a wanted one, so what it leaves behind is no fault of
    the scheduler.
    """

    mirror: Mirror
    wishes: Wishes
    liveness: Liveness
    config: SchedulerConfig
    now: Callable[[], datetime]
    left_alone_until: Callable[[NodeId], datetime | None]
    """Until when whoever acts for it spares an agent that did not answer it."""
    is_at_rest: Callable[[NodeId, WorkloadId], bool]
    """Whether nothing of a workload runs on a machine, nor will by the machine's own doing."""
    spec_on: Callable[[NodeId, WorkloadId], WorkloadSpec | None] = lambda _, __: None
    """With which spec a copy runs on a machine, where that can be told."""
    fenced_off: set[tuple[NodeId, VolumeId]] = field(factory=set)
    """From where an operator's fence let the claim on a volume go elsewhere; what the node starts
    again by itself when it is switched on is that operator's affair until it is told to end it."""
    unanswered_since: dict[NodeId, datetime] = field(factory=dict)
    """Per node that answered no call since: when the first one was not answered."""
    was_lost_at: dict[NodeId, datetime] = field(factory=dict)
    running: dict[NodeId, dict[WorkloadId, RevisionId]] = field(factory=dict)
    ended_at: dict[tuple[NodeId, WorkloadId], datetime] = field(factory=dict)
    listings: dict[NodeId, dict[WorkloadId, int]] = field(factory=dict)
    exits: set[tuple[NodeId, WorkloadId, RevisionId]] = field(factory=set)
    strays: set[tuple[NodeId, WorkloadId]] = field(factory=set)

    def runs_on(self, workload_id: WorkloadId) -> Mapping[NodeId, RevisionId]:
        """The nodes on which a workload really runs, and the revision there."""
        return {
            node: running[workload_id]
            for node, running in self.running.items()
            if workload_id in running
        }


CommitRule = Callable[[Scene, Step], Iterator[Finding]]
FullRule = Callable[[Scene], Iterator[Finding]]
