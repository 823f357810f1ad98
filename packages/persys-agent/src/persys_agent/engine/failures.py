"""``OperationError``: why the agent could not do something, in the words that schedulers know.

Decided here: the code of each kind of error, its text ``[CODE] message (workload: ID): cause``,
and whether trying again may help.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime, timedelta
from typing import TypeVar

from attrs import frozen

from persys_agent.runtimes.port import (
    FailureCode,
    PortTakenError,
    RuntimeFailedError,
    RuntimeUnavailableError,
)
from persys_agent.state.records import Condition
from persys_core.model.errors import PersysError
from persys_core.model.ids import WorkloadId
from persys_core.model.secrets import scrubbed
from persys_core.model.states import WorkloadType

__all__ = [
    "UNAVAILABLE",
    "OperationError",
    "Step",
    "asked",
    "cut_off",
    "failed_in_runtime",
    "no_runtime",
    "silent_runtime",
    "unreadable",
]

T = TypeVar("T")
UNAVAILABLE = "RUNTIME_NOT_AVAILABLE"
_LONGEST_TEXT = 2048
_FINAL = frozenset(
    {FailureCode.INVALID_SPEC, FailureCode.CLOUD_INIT_INVALID, FailureCode.NAME_CONFLICT}
)


class OperationError(PersysError):
    """``code`` is what went wrong (``CREATE_FAILED``), ``reason`` why (``IMAGE_PULL_FAILED``);
    ``holder`` who has the port that is taken (see ``PortTakenError``)."""

    def __init__(
        self,
        code: str,
        message: str,
        workload_id: WorkloadId,
        *,
        cause: str = "",
        reason: str = "",
        retryable: bool = True,
        taken: PortTakenError | None = None,
    ) -> None:
        tail = f": {cause}" if cause else ""
        super().__init__(f"[{code}] {message} (workload: {workload_id}){tail}")
        self.reason = reason or code
        self.retryable = retryable
        self.is_port_taken = taken is not None
        self.holder = taken.holder if taken is not None else None

    def condition(self, operation: str, now: datetime, secrets: Iterable[str]) -> Condition:
        """The condition that it leaves, without the workload's secrets."""
        text = scrubbed(str(self), tuple(secrets))[:_LONGEST_TEXT]
        return Condition(self.reason, text, now, self.retryable, operation)


@frozen
class Step:
    """One call of a runtime: the code and words of its failure, and how long it may take."""

    code: str
    message: str
    deadline: timedelta


async def asked(step: Step, workload_id: WorkloadId, call: Awaitable[T]) -> T:
    """The answer of a runtime. Raises ``OperationError``."""
    try:
        async with asyncio.timeout(step.deadline.total_seconds()):
            return await call
    except (RuntimeFailedError, RuntimeUnavailableError) as error:
        raise failed_in_runtime(step.code, step.message, workload_id, error) from error
    except TimeoutError as error:
        raise silent_runtime(workload_id, f"no answer within {step.deadline}") from error


def failed_in_runtime(
    code: str,
    message: str,
    workload_id: WorkloadId,
    error: RuntimeFailedError | RuntimeUnavailableError,
) -> OperationError:
    """A runtime's error, as an operation's."""
    if isinstance(error, RuntimeFailedError):
        return OperationError(
            code,
            message,
            workload_id,
            cause=str(error),
            reason=error.code,
            retryable=error.code not in _FINAL,
            taken=error if isinstance(error, PortTakenError) else None,
        )
    return silent_runtime(workload_id, str(error))


def silent_runtime(workload_id: WorkloadId, cause: str) -> OperationError:
    """The runtime does not answer, so nothing can be done."""
    return OperationError(UNAVAILABLE, "runtime not available", workload_id, cause=cause)


def cut_off(workload_id: WorkloadId) -> OperationError:
    """Exclusive work waits until the scheduler has been heard.

    The words are those of a runtime that is away: it is the node's trouble, not the workload's.
    """
    return OperationError(
        "LEASE_LOST",
        "runtime not available for exclusive work until a heartbeat is acknowledged",
        workload_id,
        reason="RUNTIME_UNAVAILABLE",
    )


def no_runtime(workload_id: WorkloadId, kind: WorkloadType) -> OperationError:
    """This node has no runtime of that type, or it is switched off."""
    return OperationError(UNAVAILABLE, f"runtime not available for type: {kind}", workload_id)


def unreadable(workload_id: WorkloadId, cause: str) -> OperationError:
    """What an earlier release accepted makes no sense to this one. It need not be the spec's fault:
    sent anew it is read anew, and refused at once where it is."""
    return OperationError(
        "CREATE_FAILED", "Failed to read what was accepted", workload_id, cause=cause
    )
