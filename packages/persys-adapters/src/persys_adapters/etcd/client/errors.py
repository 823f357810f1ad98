"""What can go wrong between this client and etcd, and which class a failure belongs to.

Decided here: the classes, and how a gRPC status becomes one of them. The code alone does not tell:
etcd says ``UNAVAILABLE`` for a request that it may still carry out and for one that it never took,
and ``RESOURCE_EXHAUSTED`` for a full disk and for a busy moment. So code and text decide together,
in an ordered table, first match wins; what no row knows is unavailable, never another exception.

Two more things are told for every failure: ``maybe_applied``, whether a write may have been done in
spite of it, and whether the endpoint is to blame, so that another one may do better.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import grpc
import grpc.aio
from attrs import frozen

__all__ = [
    "AmbiguousWriteError",
    "AuthTokenError",
    "AuthenticationError",
    "CompactedError",
    "DeadlineError",
    "EtcdError",
    "FutureRevisionError",
    "InvalidRequestError",
    "LeadershipLostError",
    "LeaseExistsError",
    "LeaseLostError",
    "NoLeaderError",
    "NoSpaceError",
    "PermissionDeniedError",
    "PreconditionError",
    "TooLargeError",
    "UnavailableError",
    "ambiguous",
    "error_of_exception",
    "error_of_status",
]


class EtcdError(Exception):
    """A call failed. The subclass tells how; ``code`` is the gRPC status, if there was one.

    ``maybe_applied`` is true only of writes: this one may have been carried out all the same, and
    whoever sent it has to look. Where it is false the write was certainly not done.
    """

    advice = ""

    def __init__(
        self,
        details: str,
        *,
        endpoint: str = "",
        code: grpc.StatusCode | None = None,
        maybe_applied: bool = False,
    ) -> None:
        self.details = details
        self.endpoint = endpoint
        self.code = code
        self.maybe_applied = maybe_applied
        super().__init__(details)

    def __str__(self) -> str:
        where = f"etcd at {self.endpoint}" if self.endpoint else "etcd"
        told = f"{where}: {self.details}"
        if self.code is not None:
            told += f" ({self.code.name})"
        return f"{told}; {self.advice}" if self.advice else told


class UnavailableError(EtcdError):
    """No answer, or one that nobody knows: etcd cannot be used at this moment."""

    advice = "check that the endpoints are right, reachable and healthy"


class NoLeaderError(UnavailableError):
    """The member that was asked sees no leader: it is cut off, or a quorum is lost."""

    advice = "more than half of the members must run and reach one another"


class DeadlineError(UnavailableError):
    """No answer within the deadline."""


class AmbiguousWriteError(UnavailableError):
    """A write got no answer after it may have been sent; its cause is the error that is known."""

    advice = "it may have been applied: read back what it wrote before sending it again"


class CompactedError(EtcdError):
    """The asked revision was compacted; ``compact_revision`` is 0 where etcd did not say it."""

    advice = "list again and go on from the revision of the listing"

    def __init__(self, details: str, *, compact_revision: int = 0, **more: Any) -> None:
        super().__init__(details, **more)
        self.compact_revision = compact_revision


class FutureRevisionError(EtcdError):
    """The asked revision was not reached: the member lags behind, or the store was rewound."""


class PermissionDeniedError(EtcdError):
    """The user may not do this to these keys."""

    advice = "grant the user's role read and write permission on the prefix"


class AuthenticationError(EtcdError):
    """Wrong user or password, or none where the cluster demands one."""

    advice = "check the user and the password that this client is given"


class AuthTokenError(AuthenticationError):
    """The token is not known or no longer valid. The client asks for another one once by itself."""


class TooLargeError(EtcdError):
    """The request is larger than etcd takes, in bytes or in operations."""

    advice = "split it: etcd takes about 1.5 MB and 128 operations in one transaction"


class NoSpaceError(EtcdError):
    """The space quota is used up. ``maybe_applied``: the write that crosses it is done *and* told
    this; deletes and keepalives still work."""

    advice = "compact, defragment, and disarm the NOSPACE alarm"


class PreconditionError(EtcdError):
    """etcd refuses in the state that it is in."""


class LeaseExistsError(PreconditionError):
    """The lease id is taken."""


class LeaseLostError(EtcdError):
    """The lease is not there: it expired or was revoked, and its keys are gone."""

    advice = "grant a new lease and write the keys again"


class LeadershipLostError(EtcdError):
    """The leader's key is gone or another's: whatever was to be done as the leader must not be."""


class InvalidRequestError(EtcdError):
    """etcd does not take the request as it is: a key twice in one transaction, an empty key."""


ErrorClass: TypeAlias = type[EtcdError]
_ANY = ""


@frozen
class _Row:
    """``applied``: a write that met this may have been done. ``code`` None matches every code."""

    code: grpc.StatusCode | None
    text: str
    becomes: ErrorClass
    applied: bool = False


_C = grpc.StatusCode
# First match wins; the text is looked for in lower case.
_ROWS = (
    # The interceptor answers this before anything is proposed.
    _Row(None, "etcdserver: no leader", NoLeaderError),
    _Row(None, "etcdserver: not capable", UnavailableError),
    _Row(None, "etcdserver: too many requests", UnavailableError),
    _Row(None, "not supported for learner", UnavailableError),
    # The pick failed: no connection, so nothing was sent.
    _Row(_C.UNAVAILABLE, "failed to connect to all addresses", UnavailableError),
    _Row(_C.UNAVAILABLE, "dns resolution failed", UnavailableError),
    _Row(_C.UNAVAILABLE, "name resolution failure", UnavailableError),
    _Row(None, "required revision has been compacted", CompactedError),
    _Row(None, "required revision is a future revision", FutureRevisionError),
    # etcd checks the quota again after it applied a transaction, and then says this of a write
    # that was done.
    _Row(None, "database space exceeded", NoSpaceError, applied=True),
    _Row(None, "invalid auth token", AuthTokenError),
    _Row(None, "revision of auth store is old", AuthTokenError),
    _Row(None, "user name is empty", AuthTokenError),  # no token was sent at all
    _Row(_C.UNAUTHENTICATED, _ANY, AuthTokenError),
    _Row(None, "invalid user id or password", AuthenticationError),
    _Row(None, "user name not found", AuthenticationError),
    _Row(_C.PERMISSION_DENIED, _ANY, PermissionDeniedError),
    _Row(None, "etcdserver: permission denied", PermissionDeniedError),
    _Row(None, "request is too large", TooLargeError),
    _Row(None, "too many operations in txn", TooLargeError),
    _Row(_C.RESOURCE_EXHAUSTED, "sent message larger than max", TooLargeError),
    _Row(_C.RESOURCE_EXHAUSTED, "grpc: received message larger than max", TooLargeError),
    _Row(_C.RESOURCE_EXHAUSTED, "trying to send message larger", TooLargeError),
    _Row(_C.RESOURCE_EXHAUSTED, "received message larger than max", TooLargeError, applied=True),
    _Row(None, "requested lease not found", LeaseLostError),
    _Row(None, "lease already exists", LeaseExistsError),
    _Row(None, "context deadline exceeded", DeadlineError, applied=True),
    _Row(None, "request timed out", DeadlineError, applied=True),
    _Row(_C.DEADLINE_EXCEEDED, _ANY, DeadlineError, applied=True),
    _Row(_C.INVALID_ARGUMENT, "etcdserver:", InvalidRequestError),
    _Row(_C.OUT_OF_RANGE, "etcdserver:", InvalidRequestError),
    _Row(_C.FAILED_PRECONDITION, "etcdserver: not leader", UnavailableError, applied=True),
    _Row(_C.FAILED_PRECONDITION, "etcdserver:", PreconditionError),
    _Row(_C.NOT_FOUND, "etcdserver:", PreconditionError),
)
_UNKNOWN = _Row(None, _ANY, UnavailableError, applied=True)


def error_of_status(
    code: grpc.StatusCode | None, details: str, *, endpoint: str = "", is_write: bool = False
) -> EtcdError:
    """The error for a gRPC status. ``code`` is ``None`` for a text that came within a stream."""
    lowered = details.lower()
    row = next((row for row in _ROWS if row.code in {None, code} and row.text in lowered), _UNKNOWN)
    return row.becomes(
        details or "no reason was given",
        endpoint=endpoint,
        code=code,
        maybe_applied=is_write and row.applied,
    )


def error_of_exception(
    failure: BaseException, *, endpoint: str = "", is_write: bool = False
) -> EtcdError:
    """The error for whatever a call raised; what is ours already is passed on."""
    match failure:
        case EtcdError():
            return failure
        case grpc.aio.AioRpcError():
            return error_of_status(
                failure.code(), failure.details() or "", endpoint=endpoint, is_write=is_write
            )
        case TimeoutError():
            return DeadlineError("no answer in time", endpoint=endpoint, maybe_applied=is_write)
        case asyncio.CancelledError():
            text = "the connection was closed under the call"
            return UnavailableError(text, endpoint=endpoint, maybe_applied=is_write)
        case _:
            text = f"{type(failure).__name__}: {failure}"
            return UnavailableError(text, endpoint=endpoint, maybe_applied=is_write)


def ambiguous(error: EtcdError) -> AmbiguousWriteError:
    """The same failure as one of a write of which nobody knows."""
    return AmbiguousWriteError(
        error.details, endpoint=error.endpoint, code=error.code, maybe_applied=True
    )
