"""The types of a call that has not been made yet, and of what makes it.

Decided here: nothing. They let the calls stand in more than one file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

__all__ = ["Ask", "Call"]

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")


class Call(Protocol[RequestT_contra, ResponseT_co]):
    """A unary method of the stub."""

    def __call__(
        self, request: RequestT_contra, /, *, timeout: float, metadata: Sequence[tuple[str, str]]
    ) -> Awaitable[ResponseT_co]: ...


class Ask(Protocol):
    """Makes a call with the client's deadline; its failure becomes one of our errors."""

    def __call__(
        self, call: Call[RequestT, AnswerT], request: RequestT, /
    ) -> Awaitable[AnswerT]: ...
