"""What a simulated run is: its size, its length, and the faults that its seed brings.

Decided here: the plan of faults, a pure function of the scenario. Nothing here makes them happen
(``disruptor``).
"""

from __future__ import annotations

import random
from datetime import timedelta
from enum import StrEnum

from attrs import frozen

from persys_core.control.config import HaConfig
from persys_core.model.drift import OrphanPolicy
from persys_core.model.replica import HaMode
from persys_core.sim.rng import stream

__all__ = ["Fault", "FaultKind", "Scenario", "plan_faults"]


class FaultKind(StrEnum):
    """What can be done to a cluster."""

    NODE_KILL = "node_kill"
    """The machine loses power and comes back."""
    NODE_WIPE = "node_wipe"
    """It comes back with an empty disk."""
    NODE_REBOOT = "node_reboot"
    AGENT_KILL = "agent_kill"
    """The agent's process dies, the workloads run on."""
    NODE_PAUSE = "node_pause"
    """The agent's process stops in its tracks and goes on later."""
    CUT = "cut"
    CUT_TO_NODE = "cut_to_node"
    CUT_FROM_NODE = "cut_from_node"
    NETWORK = "network"
    """Every link loses requests and replies and doubles messages."""
    STORE_AWAY = "store_away"
    STORE_FLAKY = "store_flaky"
    """Commits fail before or after they were done, reads fail, watches end."""
    STORE_SLOW = "store_slow"
    WATCH_LAG = "watch_lag"
    COMPACTION = "compaction"
    STORE_LOST = "store_lost"
    """The store is empty for a while, then the data is back."""
    REPLICA_CUT = "replica_cut"
    """One replica is without the store."""
    REPLICA_CRASH = "replica_crash"
    REPLICA_RESTART = "replica_restart"
    """A clean stop and a start."""
    LEADER_STALL = "leader_stall"
    """The leader renews no lease for a while."""
    NODE_JOINS = "node_joins"
    NODE_RESIZED = "node_resized"
    """The machine comes back larger or smaller."""
    CLOCK_STEP = "clock_step"
    """A machine's wall clock jumps, by seconds or by hours, and later jumps back."""
    MASS_LOSS = "mass_loss"
    """A third of all machines or more are cut off or lose power at once."""
    DRIFT_VANISHED = "drift_vanished"
    """Somebody at a machine removes a workload, past the scheduler and perhaps past the agent."""
    DRIFT_APPEARED = "drift_appeared"
    """A workload that nobody knows, or a second copy of a known one, is started at a machine."""
    DRIFT_REVISION = "drift_revision"
    """A machine is given another revision of what it has."""
    DRIFT_STATE = "drift_state"
    """Somebody at a machine stops what runs or starts what rests."""


@frozen
class Scenario:
    """A run. ``deeds_per_minute``: what users and operators do; ``faults_per_minute``: the rate
    at which faults begin, 0 for a calm run; ``orphan_policy``: the seed's choice where ``None``.
    ``ha_mode``: how the replicas share the work.
    """

    seed: int
    nodes: int = 20
    workloads: int = 100
    duration: timedelta = timedelta(minutes=60)
    replicas: int = 2
    deeds_per_minute: float = 12.0
    faults_per_minute: float = 2.0
    kinds: frozenset[FaultKind] = frozenset(FaultKind)
    orphan_policy: OrphanPolicy | None = None
    ha_mode: HaMode = HaMode.FAILOVER

    @property
    def ha(self) -> HaConfig:
        """How the replicas share the work; in active-active mode there is a shard for each."""
        sharded = self.ha_mode is HaMode.ACTIVE_ACTIVE
        return HaConfig(self.ha_mode, shard_count=self.replicas if sharded else 1)

    def policy(self) -> OrphanPolicy:
        """What becomes of orphans in this run."""
        if self.orphan_policy is not None:
            return self.orphan_policy
        return stream(self.seed, "orphans").choice(tuple(OrphanPolicy))


@frozen
class Fault:
    """``kind`` begins ``at`` after the start and lasts ``length``; ``pick`` chooses its victim."""

    at: timedelta
    kind: FaultKind
    length: timedelta
    pick: float
    strength: float


_KINDS: tuple[tuple[FaultKind, int, float, float], ...] = (
    # kind, weight, least and most seconds
    (FaultKind.NODE_KILL, 8, 20, 600),
    (FaultKind.NODE_WIPE, 3, 20, 400),
    (FaultKind.NODE_REBOOT, 8, 15, 60),
    (FaultKind.AGENT_KILL, 8, 5, 400),
    (FaultKind.NODE_PAUSE, 8, 3, 300),
    (FaultKind.CUT, 8, 5, 400),
    (FaultKind.CUT_TO_NODE, 4, 5, 300),
    (FaultKind.CUT_FROM_NODE, 4, 5, 300),
    (FaultKind.NETWORK, 8, 20, 200),
    (FaultKind.STORE_AWAY, 4, 1, 60),
    (FaultKind.STORE_FLAKY, 5, 10, 90),
    (FaultKind.STORE_SLOW, 5, 10, 90),
    (FaultKind.WATCH_LAG, 5, 10, 90),
    (FaultKind.COMPACTION, 5, 0, 0),
    (FaultKind.STORE_LOST, 1, 5, 60),
    (FaultKind.REPLICA_CUT, 4, 5, 60),
    (FaultKind.REPLICA_CRASH, 6, 1, 60),
    (FaultKind.REPLICA_RESTART, 4, 1, 20),
    (FaultKind.LEADER_STALL, 5, 3, 60),
    (FaultKind.NODE_JOINS, 2, 0, 0),
    (FaultKind.NODE_RESIZED, 3, 5, 30),
    (FaultKind.CLOCK_STEP, 4, 20, 600),
    (FaultKind.MASS_LOSS, 2, 30, 900),
    (FaultKind.DRIFT_VANISHED, 4, 0, 0),
    (FaultKind.DRIFT_APPEARED, 5, 0, 0),
    (FaultKind.DRIFT_REVISION, 3, 0, 0),
    (FaultKind.DRIFT_STATE, 5, 0, 0),
)


def plan_faults(scenario: Scenario) -> list[Fault]:
    """The faults of a run, in order of time. Those of one kind that share a resource may overlap;
    whoever makes them happen sees to it that the end of one does not end another."""
    rng = stream(scenario.seed, "faults")
    rows = [row for row in _KINDS if row[0] in scenario.kinds]
    count = round(scenario.faults_per_minute * scenario.duration / timedelta(minutes=1))
    if not rows:
        return []
    faults = [_one(scenario, rng, rows) for _ in range(count)]
    return sorted(faults, key=lambda fault: fault.at)


def _one(
    scenario: Scenario, rng: random.Random, rows: list[tuple[FaultKind, int, float, float]]
) -> Fault:
    kind, _, least, most = rng.choices(rows, weights=[row[1] for row in rows])[0]
    # Short ones are common, long ones rare.
    length = least + (most - least) * rng.random() ** 2
    return Fault(
        at=scenario.duration * rng.random(),
        kind=kind,
        length=timedelta(seconds=round(length, 3)),
        pick=rng.random(),
        strength=rng.random(),
    )
