"""What a look is worth: one line of the doctor's table; and what the looks are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum

from attrs import frozen

from persys_agent.commands import Commands
from persys_agent.runtimes.port import Capability
from persys_agent.settings import NodeSettings
from persys_agent.storage.port import StorageDriver
from persys_core.model.states import WorkloadType

__all__ = ["Case", "Finding", "Probe", "Verdict"]

Probe = Callable[[], Awaitable[Capability]]


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@frozen
class Finding:
    """One line of the table: what was looked at, what was found, and what to do about it."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


@frozen
class Case:
    """What is looked at, and with what; ``now`` is this host's clock."""

    settings: NodeSettings
    commands: Commands
    runtimes: Mapping[WorkloadType, Probe]
    storage: Mapping[str, StorageDriver]
    now: datetime
