"""What kind of agent a model stands for: its machine, its dialect and its speed.

Decided here: the two presets. ``existing_agent`` behaves as the agents in the field do, faults
included; ``our_agent`` as the one of this project. Which workloads fail and how is
``agent_behaviour``; what the network does to messages is ``faults``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

from attrs import evolve, field, frozen

from persys_core.model.ids import NodeId
from persys_core.model.mappings import text_map
from persys_core.model.node import StoragePool, capacity_of
from persys_core.model.resources import Resources
from persys_core.model.states import WorkloadType

__all__ = ["Admission", "AgentSettings", "Latency", "TaskOrder", "existing_agent", "our_agent"]


class TaskOrder(StrEnum):
    """In which order tasks of one workload run."""

    FIFO = "fifo"
    ANY = "any"
    """By chance: an apply and a delete sent together may run in reverse order."""


class Admission(StrEnum):
    """What the agent checks before it creates anything."""

    NONE = "none"
    CAPACITY = "capacity"
    """The requests of all its workloads must fit its capacity."""


@frozen
class Latency:
    """A duration that is drawn evenly between two bounds."""

    least: timedelta
    most: timedelta

    @classmethod
    def of(cls, least_seconds: float, most_seconds: float | None = None) -> Latency:
        """The bounds in seconds; one number is an exact duration."""
        most = least_seconds if most_seconds is None else most_seconds
        return cls(timedelta(seconds=least_seconds), timedelta(seconds=most))

    def at(self, share: float) -> timedelta:
        """The duration at ``share`` (0 to 1) of the way from the least to the most."""
        return self.least + (self.most - self.least) * share


_PICKUP = Latency.of(0.001, 0.05)
_CREATE = Latency.of(0.5, 3)
_SLOW_CREATE = Latency.of(120, 300)
_START = Latency.of(0.1, 1)
_STOP = Latency.of(0.1, 2)
_DELETE = Latency.of(0.1, 2)
_DEFAULT_TYPES = frozenset({WorkloadType.CONTAINER, WorkloadType.COMPOSE, WorkloadType.VM})
_DEFAULT_POOLS = (StoragePool("root", "local", 200),)


@frozen
class AgentSettings:
    """One agent. Sizes in millicores, MB and GB.

    ``sends_boot_id`` and ``sends_revision``: heartbeats carry boot id and sequence, and the
    revision of each workload. ``fences``: calls with an epoch below one seen are refused.
    ``masks_failures``: a status read replaces a failed apply by what the runtime says, so that
    a container that was never created shows as Unknown. ``hot_reregister``: a failed heartbeat
    leads to a registration without any wait. ``volume_data_on_request``: a delete removes the
    data of managed volumes only when it is told to. ``stop_after_seconds``: what it promises at its
    registration; whoever sets it has to see to it that the machine keeps the promise.
    ``claims_node_id``: the boot id is part of the registration, too, so that no other agent gets
    the node id while this one beats; an endpoint that is another at each start forbids it.
    ``boot_salt`` begins every boot id: a real process sets it to something new at each start, since
    equal seeds give equal boot ids.
    """

    node_id: NodeId
    endpoint: str = ""
    cpu_millicores: int = 16_000
    memory_mb: int = 65_536
    storage_pools: tuple[StoragePool, ...] = _DEFAULT_POOLS
    workload_types: frozenset[WorkloadType] = _DEFAULT_TYPES
    storage_drivers: frozenset[str] = frozenset({"local"})
    labels: Mapping[str, str] = field(factory=dict, converter=text_map)
    version: str = ""

    boot_salt: str = ""
    sends_boot_id: bool = False
    claims_node_id: bool = False
    sends_revision: bool = False
    sends_usage: bool = False
    fences: bool = False
    masks_failures: bool = True
    hot_reregister: bool = True
    volume_data_on_request: bool = False
    stop_after_seconds: int = 0
    task_order: TaskOrder = TaskOrder.ANY
    admission: Admission = Admission.NONE

    workers: int = 10
    queue_depth: int = 20
    reconcile_interval: timedelta = timedelta(seconds=30)
    heartbeat_collection: timedelta = timedelta(seconds=1)
    pickup: Latency = _PICKUP
    create: Latency = _CREATE
    slow_create: Latency = _SLOW_CREATE
    start: Latency = _START
    stop: Latency = _STOP
    delete: Latency = _DELETE

    def listening_at(self, endpoint: str) -> AgentSettings:
        """The same agent at another endpoint (``host:port``)."""
        return evolve(self, endpoint=endpoint)

    @property
    def capacity(self) -> Resources:
        """What the node registers with."""
        return capacity_of(self.cpu_millicores, self.memory_mb, self.storage_pools)


def existing_agent(node_id: NodeId) -> AgentSettings:
    """An agent as it runs in the field; change single fields with ``attrs.evolve``."""
    return AgentSettings(node_id)


def our_agent(node_id: NodeId) -> AgentSettings:
    """An agent of this project; change single fields with ``attrs.evolve``."""
    return AgentSettings(
        node_id,
        version="persys-agent 0.1.0",
        sends_boot_id=True,
        claims_node_id=True,
        sends_revision=True,
        sends_usage=True,
        fences=True,
        masks_failures=False,
        hot_reregister=False,
        volume_data_on_request=True,
        task_order=TaskOrder.FIFO,
        heartbeat_collection=timedelta(0),
    )
