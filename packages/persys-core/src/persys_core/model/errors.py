"""Errors that callers of the core meet, each with a text written for a person.

Expected negatives (a lost race, an unschedulable workload) are values, not exceptions; what
stands here is bad input and the refusals of a frozen control plane.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

__all__ = [
    "FieldError",
    "FrozenError",
    "InvalidInputError",
    "NotFoundError",
    "PersysError",
    "RefusedError",
    "StalePlanError",
    "TakenError",
]


class PersysError(Exception):
    """Base of every error that the core raises on purpose."""


@frozen
class FieldError:
    """One wrong field of a request: its path, and what was wrong and what is accepted.

    ``field`` is the proto path (``spec.container.ports[0].host_port``). ``message`` never quotes
    a value that could be a secret.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidInputError(PersysError):
    """A request that can never succeed as it is; ``errors`` names every wrong field at once."""

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(str(error) for error in self.errors))


class NotFoundError(PersysError):
    """The named object does not exist, at the store revision that was looked at."""

    def __init__(self, kind: str, object_id: str) -> None:
        self.kind = kind
        self.object_id = object_id
        super().__init__(f'{kind} "{object_id}" not found')


class RefusedError(PersysError):
    """A well-formed request that the present state of the cluster does not permit."""


class StalePlanError(RefusedError):
    """The request holds to a plan, and what was planned has changed since."""


class TakenError(RefusedError):
    """What was asked for by name is another's at present."""


class FrozenError(PersysError):
    """The control plane is degraded or in recovery: nothing may be changed at the moment."""
