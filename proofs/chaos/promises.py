"""What the clients asked for and what they were answered: the truth that etcd is held against.

Each workload has one client, which asks for one thing at a time. A request that was answered leaves
one right state. One whose outcome nobody knows leaves two, and may still come true for a while,
since a replica that was stopped may carry it out when it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from attrs import define, field, frozen

from persys_core.model.ids import WorkloadId
from persys_core.model.spec import ContainerSpec
from persys_core.model.states import DesiredState
from persys_core.model.workload import Workload

__all__ = ["DOUBT", "GONE", "Promise", "Promises", "generation_of", "image_of"]

GONE = 0
"""The generation of a workload that was deleted."""
DOUBT = timedelta(seconds=30)
"""How long a request is carried out at most after it was sent: its deadline, the longest that a
replica is stopped or cut off in these runs, and as much again."""
_IMAGE = "registry.example/app:"


def image_of(generation: int) -> str:
    """The image that a workload has in its ``generation``, from 1."""
    return f"{_IMAGE}{generation}"


def generation_of(workload: Workload | None) -> int:
    """The generation that a stored record stands for; ``GONE`` where its end is wanted."""
    if workload is None or workload.desired_state is DesiredState.DELETED:
        return GONE
    body = workload.spec.body
    text = body.image.removeprefix(_IMAGE) if isinstance(body, ContainerSpec) else ""
    return int(text) if text.isdecimal() else -1


@define
class Promise:
    """One workload's: the generations that may stand, and what was ever asked."""

    possible: set[int] = field(factory=lambda: {GONE})
    doubtful: dict[int, datetime] = field(factory=dict)
    """Until when the generation of a request whose outcome nobody knows may still come about."""
    asked: dict[int, datetime] = field(factory=dict)
    """When each generation was first asked for."""


@frozen
class Asking:
    """A request that is under way."""

    workload_id: WorkloadId
    generation: int
    sent_at: datetime


@define(eq=False)
class Promises:
    """Of every workload that a client named."""

    by_id: dict[WorkloadId, Promise] = field(factory=dict)

    def asks(self, workload_id: WorkloadId, generation: int, at: datetime) -> Asking:
        """A request is sent."""
        promise = self.by_id.setdefault(workload_id, Promise())
        promise.asked.setdefault(generation, at)
        promise.possible.add(generation)
        return Asking(workload_id, generation, at)

    def accepted(self, asking: Asking, at: datetime) -> None:
        """It was acknowledged: nothing else is right, but for what may still come true."""
        promise = self.by_id[asking.workload_id]
        late = {each for each, until in promise.doubtful.items() if at < until}
        promise.possible = {asking.generation, *late}

    def refused(self, asking: Asking) -> None:
        """It was turned away and changed nothing."""
        promise = self.by_id[asking.workload_id]
        if asking.generation not in promise.doubtful:
            promise.possible.discard(asking.generation)

    def unknown(self, asking: Asking) -> None:
        """Nobody knows what became of it."""
        promise = self.by_id[asking.workload_id]
        promise.doubtful[asking.generation] = asking.sent_at + DOUBT

    def was_asked(self, workload_id: WorkloadId, generation: int) -> bool:
        """Whether any client ever asked for this."""
        promise = self.by_id.get(workload_id)
        return promise is not None and generation in promise.asked

    def is_doubtful(self, workload_id: WorkloadId, generation: int, at: datetime) -> bool:
        """Whether a request for this may be carried out at ``at``, late or twice."""
        promise = self.by_id.get(workload_id)
        until = promise.doubtful.get(generation) if promise else None
        return until is not None and at < until

    def delete_asked_at(self, workload_id: WorkloadId) -> datetime | None:
        """When its end was first asked for."""
        promise = self.by_id.get(workload_id)
        return promise.asked.get(GONE) if promise else None

    def contradiction(self, workload_id: WorkloadId, stored: Workload | None) -> str:
        """How the record differs from everything that is right; empty where it is right."""
        promise, found = self.by_id.get(workload_id), generation_of(stored)
        if promise is None:
            return "nobody ever asked for it"
        if found in promise.possible:
            return ""
        right = " or ".join(map(_text, sorted(promise.possible)))
        return f"etcd has {_text(found)}, its client was promised {right}"

    def undecided(self) -> int:
        """How many workloads have more than one right state."""
        return sum(len(promise.possible) > 1 for promise in self.by_id.values())

    def wanted(self) -> Iterator[WorkloadId]:
        """Those that must be there."""
        for workload_id, promise in self.by_id.items():
            if GONE not in promise.possible:
                yield workload_id


def _text(generation: int) -> str:
    return "nothing" if generation == GONE else f"generation {generation}"
