"""The port of a runtime: what the agent asks of Docker, Compose, libvirt or Firecracker.

A runtime carries out and reports. It keeps no state of ours, decides nothing about retries, and
never removes what it does not own. What is owned is marked in the runtime itself with the cluster,
the node, the workload and the revision (``Owner``), so that two agents on one host never see each
other's work. Its duties:

* ``create`` is idempotent. An instance of this workload with the same revision and spec hash is
  adopted as it is (running or not); one of ours with another is replaced (what the workload keeps
  in volumes survives); one that is not ours is left alone: ``RuntimeFailedError`` with
  ``NAME_CONFLICT``.
* ``start``, ``stop`` and ``remove`` of what is already so are successes; ``remove`` of what is
  absent is one too. ``remove`` leaves nothing behind but managed volumes and, unless
  ``with_data`` is set, volumes that the runtime itself made for the workload.
* ``inspect`` returns ``None`` only where the runtime answered that it has no such instance. A
  runtime that does not answer raises ``RuntimeUnavailableError``: nothing is known then, and
  nobody may take that for *absent*.
* No call blocks the event loop, and each may be cancelled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from attrs import field, frozen

from persys_core.model.errors import PersysError
from persys_core.model.ids import NodeId, RevisionId, WorkloadId
from persys_core.model.mappings import text_map
from persys_core.model.observation import AgentState
from persys_core.model.spec import ManagedVolume, PortMapping, WorkloadSpec
from persys_core.model.states import WorkloadType
from persys_core.model.usage import WorkloadUsage

__all__ = [
    "AttachedVolume",
    "Capability",
    "Creation",
    "ExecExit",
    "ExecOutput",
    "FailureCode",
    "Instance",
    "Interactive",
    "LogLine",
    "Order",
    "Owner",
    "PortTakenError",
    "Runtime",
    "RuntimeFailedError",
    "RuntimeUnavailableError",
]


class FailureCode(StrEnum):
    """Why a runtime could not do something; the agents' own codes, which schedulers know."""

    IMAGE_NOT_FOUND = "INVALID_IMAGE"
    IMAGE_PULL_FAILED = "IMAGE_PULL_FAILED"
    IMAGE_PULL_TIMEOUT = "IMAGE_PULL_TIMEOUT"
    IMAGE_PULL_AUTH_FAILED = "IMAGE_PULL_AUTH_FAILED"
    PORT_CONFLICT = "PORT_BIND_CONFLICT"
    NAME_CONFLICT = "NAME_CONFLICT"
    INVALID_SPEC = "INVALID_SPECIFICATION"
    CLOUD_INIT_INVALID = "CLOUD_INIT_INVALID"
    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    STORAGE_FULL = "STORAGE_FULL"
    VOLUME_FAILED = "VOLUME_MOUNT_FAILED"
    RUNTIME_ERROR = "RUNTIME_ERROR"


class RuntimeFailedError(PersysError):
    """The runtime answered that it cannot; the text is for people and holds no secret."""

    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class PortTakenError(RuntimeFailedError):
    """A host port is somebody else's. ``holder``: the workload of this node that has it; empty
    where it is not this node's; ``None`` where nobody is found that has it."""

    def __init__(self, message: str, holder: WorkloadId | None) -> None:
        super().__init__(FailureCode.PORT_CONFLICT, message)
        self.holder = holder


class RuntimeUnavailableError(PersysError):
    """The runtime did not answer, or not sensibly: what it runs is unknown, not gone."""


@frozen
class Owner:
    """Whose instances these are: the node's id, and the cluster's (empty where none is set)."""

    node_id: NodeId
    cluster_id: str = ""


@frozen
class AttachedVolume:
    """A managed volume, made ready on this host.

    Exactly one of ``path`` (a folder to mount) and ``device`` (a block device, or ``rbd:pool/name``
    and the like, for machines) is set.
    """

    volume: ManagedVolume
    path: str = ""
    device: str = ""


@frozen
class Order:
    """What to create. ``spec_hash`` is over the whole spec, so a changed spec under an unchanged
    revision shows."""

    workload_id: WorkloadId
    revision_id: RevisionId
    spec_hash: str
    spec: WorkloadSpec
    volumes: tuple[AttachedVolume, ...] = ()

    def is_of(self, revision_id: RevisionId, spec_hash: str) -> bool:
        """Whether what bears these marks was made of the same."""
        return (revision_id, spec_hash) == (self.revision_id, self.spec_hash)


class Creation(StrEnum):
    """What ``create`` did."""

    CREATED = "created"
    ADOPTED = "adopted"
    REPLACED = "replaced"


@frozen
class Instance:
    """One workload as the runtime has it now.

    ``state``: Running; Pending (starting, restarting by the runtime's own policy, part of a
    Compose application not up yet); Stopped (created, stopped, paused, ended with code 0); Failed
    (ended otherwise, dead). ``message`` says it in the runtime's words, as the agents in the field
    do (``exited with code 3``). ``exit_code`` is ``None`` while it never ended. ``ports`` are
    those really bound, host ports filled in. ``metadata`` holds the keys that agents report
    (``container.exit_code``, ``vm.primary_ip`` …). ``restarts`` counts the runtime's own.
    """

    workload_id: WorkloadId
    revision_id: RevisionId
    spec_hash: str
    state: AgentState
    message: str = ""
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    restarts: int = 0
    ports: tuple[PortMapping, ...] = ()
    metadata: Mapping[str, str] = field(factory=dict, converter=text_map)


@frozen
class Capability:
    """Whether a runtime can be used now: ``detail`` says its version, or what is missing and what
    to do about it."""

    is_available: bool
    detail: str


class Runtime(Protocol):
    """One technology. ``kind`` is the type of workload that it runs."""

    kind: WorkloadType

    async def probe(self) -> Capability:
        """Ask the technology itself whether it works. Never raises."""
        ...

    async def create(self, order: Order) -> Creation:
        """Make the instance, not running yet. Raises ``RuntimeFailedError``, which leaves nothing
        half made, or ``RuntimeUnavailableError``."""
        ...

    async def start(self, workload_id: WorkloadId) -> None:
        """Run it. Raises as ``create`` does, also where there is no such instance."""
        ...

    async def stop(self, workload_id: WorkloadId, grace: timedelta) -> None:
        """Ask it to end, and end it by force after ``grace``."""
        ...

    async def remove(self, workload_id: WorkloadId, *, with_data: bool = False) -> None:
        """Stop and remove it with all that belongs to it alone."""
        ...

    async def inspect(self, workload_id: WorkloadId) -> Instance | None:
        """The instance of ours, or ``None`` where the runtime has none."""
        ...

    async def instances(self) -> Sequence[Instance]:
        """Every instance of ours, in the order of ids; never somebody else's."""
        ...

    async def aclose(self) -> None:
        """Let go of connections; what runs runs on."""
        ...


@frozen
class LogLine:
    """One line of output without its end; ``stream`` is ``stdout``, ``stderr`` or ``console``.
    ``source`` names the service of a Compose application."""

    text: str
    stream: str = "stdout"
    source: str = ""
    at: datetime | None = None


@frozen
class ExecOutput:
    """Some bytes that a command wrote; ``stream`` is ``stdout`` or ``stderr``."""

    data: bytes
    stream: str = "stdout"


@frozen
class ExecExit:
    """How a command ended."""

    code: int


class Interactive(Protocol):
    """What some runtimes also give; those that cannot raise ``RuntimeFailedError``."""

    async def usage(self) -> Mapping[WorkloadId, WorkloadUsage]:
        """What the running instances use, over the time since the last call."""
        ...

    def logs(self, workload_id: WorkloadId, *, tail: int, follow: bool) -> AsyncIterator[LogLine]:
        """The last ``tail`` lines (0: none), then with ``follow`` those to come until it ends."""
        ...

    def execute(
        self,
        workload_id: WorkloadId,
        command: Sequence[str],
        input: AsyncIterator[bytes],
        *,
        tty: bool = False,
    ) -> AsyncIterator[ExecOutput | ExecExit]:
        """Run a command inside; the last item is its ``ExecExit``. Closing the iterator ends it."""
        ...
