"""What machines refuse: commands, as nothing of ours is inside a guest to run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Generic, NoReturn, TypeVar

from attrs import frozen

from persys_agent.runtimes.port import ExecExit, ExecOutput, FailureCode, RuntimeFailedError
from persys_core.model.ids import WorkloadId

__all__ = ["Refusal", "RefusesCommands"]

_T = TypeVar("_T")
_NO_EXECUTE = "a machine runs no commands for us: log in over its network, or read its logs"


@frozen
class Refusal(Generic[_T]):
    """Raises ``RuntimeFailedError`` with ``reason`` when the first item is asked for."""

    reason: str

    def __aiter__(self) -> Refusal[_T]:
        return self

    async def __anext__(self) -> NoReturn:
        raise RuntimeFailedError(FailureCode.RUNTIME_ERROR, self.reason)

    async def aclose(self) -> None:
        """There is nothing to close."""


class RefusesCommands:
    """``Interactive.execute`` of runtimes whose technology has no way into a guest."""

    def execute(
        self,
        workload_id: WorkloadId,
        command: Sequence[str],
        input: AsyncIterator[bytes],
        *,
        tty: bool = False,
    ) -> AsyncIterator[ExecOutput | ExecExit]:
        """Refused, once the first item is asked for."""
        return Refusal(_NO_EXECUTE)
