"""Releases: whether what the release of a lost node set in motion has been seen to.

The limiter lets the work of one more node go after a pause. Time alone is no measure of that: a
store that answers late holds the commits of many releases back, and then they all hold at once.
So a release is carried out when each workload of its node was looked at after it began, and the
commit of that look, if there was one, has its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from attrs import define, field

from persys_core.control.committer import LeadershipLostError
from persys_core.control.work import Work, workload_work
from persys_core.model.errors import FrozenError
from persys_core.model.ids import NodeId, WorkloadId
from persys_core.ports.cluster_store import StoreUnavailableError

__all__ = ["Releases"]

_UNDECIDED = (StoreUnavailableError, FrozenError, LeadershipLostError)


class _Assignments(Protocol):
    """What is where, as a view knows it."""

    def assigned_to(self, node_id: NodeId) -> frozenset[WorkloadId]: ...


@define(eq=False)
class _Owed:
    """A look that is owed since the release of this node."""

    node_id: NodeId


@define(eq=False)
class Releases:
    """The releases of one term."""

    _owed: dict[Work, _Owed] = field(factory=dict, init=False)

    def begin(self, node_id: NodeId, workload_ids: Iterable[WorkloadId]) -> None:
        """The node is released: a look at each of these is owed."""
        self._owed.update((workload_work(each), _Owed(node_id)) for each in workload_ids)

    def under_way(self, view: _Assignments) -> bool:
        """Whether a look is owed at anything that is still where it was."""
        self._owed = {
            work: owed
            for work, owed in self._owed.items()
            if work.workload_id in view.assigned_to(owed.node_id)
        }
        return bool(self._owed)

    @contextmanager
    def looking_at(self, work: Work) -> Iterator[None]:
        """One look. It counts if it began after the release, and if the store had its say; one
        that ends in a bug counts too, so that no other node has to wait for its repair."""
        owed = self._owed.get(work)
        try:
            yield
        except _UNDECIDED:
            raise
        except Exception:
            self._seen(work, owed)
            raise
        else:
            self._seen(work, owed)

    def _seen(self, work: Work, owed: _Owed | None) -> None:
        if owed is not None and self._owed.get(work) is owed:
            del self._owed[work]
