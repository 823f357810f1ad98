"""The watcher: sees every commit, every agent call and every machine, and has them judged.

Decided here: when which rule is checked, and that the first violation ends the run. The rules are
in ``invariants_*``; what people read is in ``history``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from persys_core.model.ids import NodeId, WorkloadId
from persys_core.model.node import Node
from persys_core.model.observation import AgentReport
from persys_core.model.spec import WorkloadSpec
from persys_core.ports.agents import (
    Agents,
    ApplyOutcome,
    ApplyRequest,
    DeleteOutcome,
    DeleteRequest,
    ListOutcome,
    StatusOutcome,
    Unreachable,
)
from persys_core.ports.cluster_store import COORDINATION, Commit, Delete, Kind
from persys_core.ports.observer import Metric
from persys_core.sharding.hashing import UNASSIGNED
from persys_core.sim.agent_journal import Happening, JournalEntry
from persys_core.sim.cluster import SimulatedCluster
from persys_core.sim.describe import described, described_outcome, subjects_of
from persys_core.sim.history import History
from persys_core.sim.invariants import CommitRule, Finding, FullRule, Rule, Scene
from persys_core.sim.invariants_calls import (
    Announcements,
    budget,
    is_lost,
    patience,
    wanted,
)
from persys_core.sim.invariants_evictions import Evictions
from persys_core.sim.invariants_ledger import capacity, ledger, ledger_in_full, one_assignment
from persys_core.sim.invariants_owners import Epochs, is_about_owners, one_owner
from persys_core.sim.invariants_promises import promise, promises, promises_in_full
from persys_core.sim.invariants_volumes import attachments, note_fences, volumes_in_step
from persys_core.sim.journal_reader import JournalReader
from persys_core.sim.mirror import Mirror, Step
from persys_core.sim.wishes import Wishes

__all__ = ["WatchedAgents", "Watcher"]

COMMIT_RULES: tuple[CommitRule, ...] = (
    capacity,
    one_assignment,
    patience,
    budget,
    ledger,
    attachments,
    promises,
    wanted,
)
FULL_RULES: tuple[FullRule, ...] = (ledger_in_full, promises_in_full)
_MOVES = (Kind.ASSIGNMENT, Kind.TOMBSTONE)


class Watcher:
    """Judges one simulated cluster. ``finding`` is the first violation, ``found`` tells of it.

    Size: one method for each kind of thing that it is told.
    """

    def __init__(self, cluster: SimulatedCluster, wishes: Wishes, history: History) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._history = history
        self._start = cluster.clock.now() - timedelta(seconds=cluster.clock.monotonic())
        self.mirror = Mirror(cluster.backend)
        self.scene = Scene(
            self.mirror,
            wishes,
            cluster.liveness,
            cluster.config,
            cluster.clock.now,
            self._left_alone_until,
            self._is_at_rest,
            self._spec_on,
        )
        self.finding: Finding | None = None
        self.found = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.data_is_whole = True
        """False while the store's content is taken away; the mirror keeps what it was."""
        self._announcements = Announcements()
        self._journals = JournalReader(cluster.machines, self.scene)
        self._is_silent = False
        self.evictions = Evictions(self.scene, self._leader)
        self._epochs = Epochs()
        cluster.events.on_append(self.evictions.heard)
        cluster.backend.on_commit(self._on_commit)

    def report(self, findings: Iterable[Finding]) -> None:
        """Keep the first violation and end the run."""
        for finding in findings:
            self._history.add("VIOLATED", finding.subjects, f"{finding.rule}: {finding.text}")
            if self.finding is None:
                self.finding = finding
                self.found.set()

    def look(self) -> None:
        """Every few seconds: what only time can violate."""
        self.read_journals()
        self._judge_owners()
        if self.data_is_whole:
            self.report(self.evictions.look())

    def check_in_full(self) -> None:
        """Everything, whatever was touched."""
        self.read_journals()
        if self.data_is_whole:
            for rule in FULL_RULES:
                self.report(rule(self.scene))
        bugs = sum(replica.observer.count(Metric.BUGS) for replica in self._cluster.replicas)
        if bugs:
            self.report([Finding(Rule.NO_BUGS, f"{bugs} bugs were logged and counted", ())])

    def check_at_rest(self) -> None:
        """Everything, and what holds once nothing is under way any more."""
        self.check_in_full()
        self.report(volumes_in_step(self.scene))

    def check_promise(self, subject: str) -> None:
        """A request about ``subject`` came back: what its user now may rely on holds already."""
        if self.data_is_whole:
            self.report(promise(self.scene, subject))

    def read_journals(self) -> None:
        """Follow the machines up to now."""
        for node_id, entry, findings in self._journals.read(self._clock.now()):
            self._note(node_id, entry)
            self.report(findings)

    def watch_silence(self) -> None:
        """From now on no commit may come (rule 9)."""
        self._is_silent = True

    def hears(self, node_id: NodeId) -> None:
        """A word of the node arrives; was it lost until now?"""
        if is_lost(self.scene, node_id, self._clock.now()):
            self.scene.was_lost_at[node_id] = self._clock.now()

    # What the agents' port tells

    def apply_sent(self, replica: str, node_id: NodeId, request: ApplyRequest) -> None:
        """An apply is about to leave a replica."""
        self.counts["agent_applies"] += 1
        self._journals.sent(node_id, request.workload_id, Happening.APPLY)
        self._history.add(
            "call",
            (request.workload_id, node_id),
            f"{replica} applies {request.desired_state} {request.revision_id[:8]}"
            f" epoch {request.epoch}",
        )
        self.report(self._announcements.applied(node_id, request))

    def delete_sent(self, replica: str, node_id: NodeId, request: DeleteRequest) -> None:
        """A delete is about to leave a replica."""
        self.counts["agent_deletes"] += 1
        self._journals.sent(node_id, request.workload_id, Happening.DELETE)
        data = " with data" if request.delete_volumes else ""
        self._history.add(
            "call",
            (request.workload_id, node_id),
            f"{replica} deletes{data} epoch {request.epoch}",
        )
        self.report(self._announcements.deleted(node_id, request))

    def answered(self, node_id: NodeId, workload_id: WorkloadId, outcome: object) -> None:
        """A call about a workload came back."""
        self.reached(node_id, outcome)
        self._history.add("answer", (workload_id, node_id), described_outcome(outcome))

    def reached(self, node_id: NodeId, outcome: object) -> None:
        """A node answered a call, or did not."""
        if isinstance(outcome, Unreachable):
            self.scene.unanswered_since.setdefault(node_id, self._clock.now())
        else:
            self.scene.unanswered_since.pop(node_id, None)

    def listed(self, node_id: NodeId, reports: Iterable[AgentReport]) -> None:
        """A node says all that it has, in a list or in a full heartbeat."""
        mirror, listings = self.scene.mirror, self.scene.listings.setdefault(node_id, {})
        strangers = [
            report.workload_id
            for report in reports
            if mirror.tombstone(node_id, report.workload_id) is None
            and not mirror.is_assigned(report.workload_id, node_id)
        ]
        self.scene.listings[node_id] = {each: listings.get(each, 0) + 1 for each in strangers}

    # What the store tells

    def _on_commit(self, commit: Commit, revision: int) -> None:
        self.counts["commits"] += 1
        if not self.data_is_whole:
            self._judge_commit_to_nowhere(commit, revision)
            return
        if any(write.key.kind in _MOVES for write in commit.writes):
            # What ran before this commit is judged by the tombstones from before it.
            self.read_journals()
        self._give_up_nodes(commit)
        step = self.mirror.take(commit, revision, self._clock.now())
        self._write_down(step)
        self._announcements.note(step)
        note_fences(self.scene, step)
        self._judge_silence(step)
        for rule in COMMIT_RULES:
            self.report(rule(self.scene, step))
        self.report(self._epochs.committed(self.scene, step))
        self.report(self.evictions.committed(step))
        if is_about_owners(step):
            self._judge_owners()

    def _judge_owners(self) -> None:
        nodes = [each.id for each in self.mirror.values(Kind.NODE, Node)]
        acting = [
            (
                replica.scheduler.instance_id,
                frozenset(n for n in ("", *nodes) if replica.scheduler.acts_for(n)),
            )
            for replica in self._cluster.replicas
            if replica.is_up
        ]
        self.report(one_owner(nodes, acting))

    def _give_up_nodes(self, commit: Commit) -> None:
        """Who removes a node answers for copies that may still run there, or yet start."""
        for write in commit.writes:
            if isinstance(write, Delete) and write.key.kind is Kind.NODE:
                self.read_journals()
                node_id = write.key.id
                given_up = {*self.mirror.bound_to(node_id), *self.scene.running.get(node_id, {})}
                self.scene.strays.update((node_id, each) for each in given_up)

    def _judge_commit_to_nowhere(self, commit: Commit, revision: int) -> None:
        """A store without our data is nobody's to write to; only the election goes on there."""
        for write in commit.writes:
            self._history.add("nowhere", (write.key.id,), f"r{revision} {write.key}")
            if write.key.kind not in COORDINATION:
                text = f"{write.key} was written to a store that had lost its data"
                self.report([Finding(Rule.NO_STRAY_STOP, text, (write.key.id,))])

    def _left_alone_until(self, node_id: NodeId) -> datetime | None:
        for replica in self._cluster.replicas:
            if replica.is_up and replica.scheduler.acts_for(node_id):
                return replica.scheduler.reach.blocked_until(node_id)
        return None

    def _leader(self) -> str:
        """Who leads, or sets the pace for all, and is not frozen."""
        for replica in self._cluster.replicas:
            scheduler = replica.scheduler
            acts = scheduler.is_leader and scheduler.acts_for(UNASSIGNED)
            if replica.is_up and acts and not scheduler.modes.is_frozen:
                return scheduler.instance_id
        return ""

    def _is_at_rest(self, node_id: NodeId, workload_id: WorkloadId) -> bool:
        model = self._cluster.machines.find(node_id)
        return model is None or model.is_at_rest(workload_id, self._clock.now())

    def _spec_on(self, node_id: NodeId, workload_id: WorkloadId) -> WorkloadSpec | None:
        model = self._cluster.machines.find(node_id)
        return model.spec_of(workload_id) if model else None

    def _judge_silence(self, step: Step) -> None:
        for change in step.touched if self._is_silent else ():
            text = f"a steady cluster wrote {described(change, step.revision)}"
            self.report([Finding(Rule.STEADY, text, subjects_of(change))])

    def _write_down(self, step: Step) -> None:
        for change in step.touched:
            self.counts[f"writes_{change.key.kind}"] += 1
            self._history.add("commit", subjects_of(change), described(change, step.revision))

    def _note(self, node_id: NodeId, entry: JournalEntry) -> None:
        self.counts[f"machines_{entry.what}"] += 1
        subjects = (entry.workload_id, node_id) if entry.workload_id else (node_id,)
        text = f"{entry.what} {entry.revision_id[:8]} {entry.detail[:60]}"
        self._history.add("machine", subjects, text.rstrip(), seconds=self._seconds(entry.at))

    def _seconds(self, at: datetime) -> float:
        return (at - self._start).total_seconds()


class WatchedAgents:
    """An Agents port that tells a watcher of each call before it is made."""

    def __init__(self, agents: Agents, watcher: Watcher, replica: str) -> None:
        self._agents = agents
        self._watcher = watcher
        self._replica = replica

    async def apply(self, node: Node, request: ApplyRequest, timeout: timedelta) -> ApplyOutcome:
        """As the port says."""
        self._watcher.apply_sent(self._replica, node.id, request)
        outcome = await self._agents.apply(node, request, timeout)
        self._watcher.answered(node.id, request.workload_id, outcome)
        return outcome

    async def delete(self, node: Node, request: DeleteRequest, timeout: timedelta) -> DeleteOutcome:
        """As the port says."""
        self._watcher.delete_sent(self._replica, node.id, request)
        outcome = await self._agents.delete(node, request, timeout)
        self._watcher.answered(node.id, request.workload_id, outcome)
        return outcome

    async def status(
        self, node: Node, workload_id: WorkloadId, timeout: timedelta
    ) -> StatusOutcome:
        """As the port says."""
        self._watcher.counts["agent_queries"] += 1
        outcome = await self._agents.status(node, workload_id, timeout)
        self._watcher.answered(node.id, workload_id, outcome)
        return outcome

    async def list(self, node: Node, timeout: timedelta) -> ListOutcome:
        """As the port says."""
        self._watcher.counts["agent_lists"] += 1
        outcome = await self._agents.list(node, timeout)
        self._watcher.reached(node.id, outcome)
        if isinstance(outcome, Sequence):
            self._watcher.listed(node.id, outcome)
        return outcome

    async def last_error(self, node: Node, workload_id: WorkloadId, timeout: timedelta) -> str:
        """As the port says."""
        return await self._agents.last_error(node, workload_id, timeout)

    async def forget(self, node_id: NodeId) -> None:
        """As the port says."""
        await self._agents.forget(node_id)

    async def aclose(self) -> None:
        """As the port says."""
        await self._agents.aclose()
