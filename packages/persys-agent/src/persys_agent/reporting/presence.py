"""``NodePresence``: what this node registers with, and what its next heartbeat says.

Decided here: that a heartbeat carries what was measured before, so that collecting it takes one
question per runtime and no sampling (agent defect 23).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import timedelta

from attrs import define

from persys_agent.engine.works import Works
from persys_agent.reporting.detector import Detector
from persys_agent.reporting.usage import UsageCollector
from persys_core.control.requests import Heartbeat, RegisterNode
from persys_core.model.ids import NodeId
from persys_core.model.node import StoragePool
from persys_core.model.resources import Resources
from persys_core.model.usage import NodeUsage

__all__ = ["NodePresence"]


@define
class NodePresence:
    """``boot_id`` is of this start of the process. ``capacity`` gives amounts and pools.

    ``endpoint`` is known once the server listens. Where it is another one at each start, the node
    may not claim its id (``claims_node_id``), or it would have to wait for its own lease to end.
    """

    node_id: NodeId
    cluster_id: str
    version: str
    labels: Mapping[str, str]
    capacity: Callable[[], tuple[Resources, tuple[StoragePool, ...]]]
    reserved: Resources
    stop_after: timedelta | None
    boot_id: str
    works: Works
    detector: Detector
    collector: UsageCollector
    endpoint: str = ""
    claims_node_id: bool = True

    def registration(self) -> RegisterNode:
        """What the scheduler is to know; equal as long as it knows it."""
        found = self.detector.current
        capacity, pools = self.capacity()
        return RegisterNode(
            node_id=self.node_id,
            capacity=capacity,
            endpoint=self.endpoint,
            workload_types=found.workload_types,
            reserved=self.reserved,
            storage_drivers=found.storage_drivers,
            storage_pools=pools,
            labels=self.labels,
            agent_version=self.version,
            cluster_id=self.cluster_id,
            stop_after_seconds=_whole_seconds(self.stop_after),
            boot_id=self.boot_id if self.claims_node_id else "",
        )

    async def beat(self, sequence: int) -> Heartbeat:
        """The heartbeat of that number, as things are now."""
        reports = await self.works.board.reports()
        now = self.works.clock.now()
        known = {each.workload_id for each in reports}
        return Heartbeat(
            node_id=self.node_id,
            reports=tuple(reports),
            usage=NodeUsage(self.node_id, self.collector.host.use.used, now),
            workload_usage=tuple(
                usage for name, usage in self.collector.newest.items() if name in known
            ),
            boot_id=self.boot_id,
            sequence=sequence,
            sent_at=now,
        )


def _whole_seconds(duration: timedelta | None) -> int:
    """Rounded up: the scheduler may wait longer than was promised, never less."""
    return math.ceil(duration.total_seconds()) if duration else 0
