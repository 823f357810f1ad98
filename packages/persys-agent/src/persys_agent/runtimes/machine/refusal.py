"""An iterator that refuses: what a runtime returns for a verb that its technology has not."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from attrs import frozen

from persys_agent.runtimes.port import FailureCode, RuntimeFailedError

__all__ = ["Refusal"]

_T = TypeVar("_T")


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
