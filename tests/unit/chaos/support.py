"""A history that is written by hand: revisions of etcd, lines of journals, and what was asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import define, evolve, field

from persys_adapters.etcd.client import KeyEvent, KeyValue, WatchBatch
from persys_adapters.records.codec import encode
from persys_adapters.records.layout import LEADER_PREFIX, path_of
from persys_core.model.cluster import ClusterMarker
from persys_core.model.replica import HaMode
from persys_core.model.resources import Resources
from persys_core.model.states import DesiredState, WorkloadStatus
from persys_core.model.workload import (
    Allocation,
    Assignment,
    Intent,
    IntentAction,
    StatusRecord,
    Tombstone,
    Workload,
)
from persys_core.ports.cluster_store import Key, Record
from persys_core.sim.agent_journal import Happening
from persys_core.sim.invariants import Rule
from proofs.chaos.journal import JournalLine
from proofs.chaos.observer import Observer
from proofs.chaos.picture import Picture
from proofs.chaos.promises import image_of
from proofs.chaos.rules_machines import Bounds
from tests.builders import container, make_node

__all__ = ["CPU", "START", "History", "revision_of"]

START = datetime(2026, 1, 1, tzinfo=UTC)
CPU = Resources.of(cpu_millicores=1000, memory_mb=128)
GRACE = timedelta(seconds=20)


def revision_of(generation: int) -> str:
    """The spec's revision in a generation."""
    return f"rev-{generation}"


@define(eq=False)
class History:
    """Each verb is one revision of etcd, one line of a journal, or one request, a second later."""

    observer: Observer = field(factory=lambda: Observer(Picture(HaMode.FAILOVER)))
    revision: int = 0
    seconds: float = 0.0
    epoch: int = 0
    _created: dict[str, int] = field(factory=dict)

    @classmethod
    def begun(cls, *nodes: str, cpu: int = 4000) -> History:
        """A cluster with a marker, a leader and these nodes."""
        history = cls()
        history.puts({Key.marker(): ClusterMarker("c", START)})
        history.leads("one")
        for node in nodes:
            history.puts({Key.node(node): make_node(node, cpu=cpu)})
        return history

    @property
    def now(self) -> datetime:
        """The present instant."""
        return START + timedelta(seconds=self.seconds)

    def puts(self, records: dict[Key, Record | None]) -> None:
        """One revision; ``None`` removes a record."""
        events = [
            (path_of(key), None if record is None else encode(key, record))
            for key, record in records.items()
        ]
        self.raw(events)

    def leads(self, instance_id: str) -> None:
        """Another instance leads from now on."""
        path = f"{LEADER_PREFIX}abc"
        if path in self._created:
            self.raw([(path, None)])
        self.raw([(path, instance_id.encode())])
        self.epoch = self.revision

    def asked(self, workload_id: str = "w", generation: int = 1, answer: str = "accepted") -> None:
        """A client asks for a generation (0: the deletion) and is answered."""
        promises = self.observer.promises
        asking = promises.asks(workload_id, generation, self.now)
        match answer:
            case "accepted":
                promises.accepted(asking, self.now)
            case "refused":
                promises.refused(asking)
            case _:
                promises.unknown(asking)
        self.seconds += 1

    def placed(self, workload_id: str, node: str, generation: int = 1, count: int = 1) -> None:
        """A client's apply, stored and placed in one commit, with the ledger as it must be."""
        self.asked(workload_id, generation)
        self.puts(
            {
                **self.wish(workload_id, generation),
                Key.assignment(workload_id): self.assignment(workload_id, node),
                Key.allocation(node): self.ledger(node, count),
            }
        )

    def announced(
        self,
        workload_id: str = "w",
        node: str = "n1",
        action: IntentAction = IntentAction.APPLY_RUNNING,
        **changed: Any,
    ) -> None:
        """The leader announces a call."""
        deadline = self.now + timedelta(seconds=15)
        intent = evolve(
            Intent(action, node, revision_of(1), self.epoch, self.now, deadline), **changed
        )
        self.puts({Key.status(workload_id): self.status(workload_id, intent)})

    def line(
        self, what: Happening, node: str = "n1", workload_id: str = "w", **changed: Any
    ) -> None:
        """One line of a machine's journal; a call carries the leader's epoch."""
        detail = str(DesiredState.RUNNING) if what is Happening.APPLY else ""
        line = JournalLine(
            node, self.now, what, workload_id, revision_of(1), detail, epoch=self.epoch
        )
        self.observer.read([evolve(line, **changed)])
        self.seconds += 1

    def runs(self, node: str = "n1", workload_id: str = "w") -> None:
        """Announced, called and started: as it should be."""
        self.announced(workload_id, node)
        self.line(Happening.APPLY, node, workload_id)
        self.line(Happening.STARTED, node, workload_id)

    def broken(self) -> list[Rule]:
        """The rules that were violated."""
        return [each.rule for each in self.observer.verdict(Bounds(GRACE))]

    def texts(self) -> str:
        """What is said of them."""
        return "\n".join(each.describe(7) for each in self.observer.verdict(Bounds(GRACE)))

    def wish(self, workload_id: str, generation: int) -> dict[Key, Record | None]:
        """The record of a workload as its client wants it; generation 0 is on its way out."""
        desired = DesiredState.RUNNING if generation else DesiredState.DELETED
        spec = container(image_of(max(generation, 1)))
        record = Workload(
            workload_id, "uid", spec, revision_of(max(generation, 1)), desired, START, self.now
        )
        return {Key.workload(workload_id): record}

    def assignment(self, workload_id: str, node: str) -> Assignment:
        """A share of a node."""
        return Assignment(workload_id, "uid", node, CPU, "", self.now)

    def ledger(self, node: str, count: int) -> Allocation:
        """The ledger of a node with so many equal shares."""
        return Allocation(node, Resources.total([CPU] * count), count)

    def grave(self, workload_id: str = "w", node: str = "n1") -> Tombstone:
        """A delete that is owed to a node, which holds the share."""
        return Tombstone(node, workload_id, "uid", revision_of(1), CPU, self.now, "node_lost")

    def status(
        self,
        workload_id: str,
        intent: Intent | None = None,
        status: WorkloadStatus = WorkloadStatus.RUNNING,
    ) -> StatusRecord:
        """The status record of a workload."""
        return StatusRecord(workload_id, "uid", status, self.now, intent=intent)

    def raw(self, events: list[tuple[str, bytes | None]]) -> None:
        """One revision, in paths and values."""
        self.revision += 1
        self.seconds += 1
        changed = tuple(self._event(path, value) for path, value in events)
        self.observer.take(WatchBatch(self.revision, changed), self.now)

    def _event(self, path: str, value: bytes | None) -> KeyEvent:
        if value is None:
            self._created.pop(path, None)
            return KeyEvent(KeyValue(path.encode(), b"", self.revision, 0, 0, 0), True)
        created = self._created.setdefault(path, self.revision)
        kv = KeyValue(path.encode(), value, self.revision, created, 1, 0)
        return KeyEvent(kv, False)
