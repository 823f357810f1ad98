"""Every failure has a class, and says whether a write may have been done."""

import asyncio
import itertools

import grpc
import pytest

from persys_adapters.etcd.client import errors as e
from persys_adapters.etcd.client.errors import error_of_exception, error_of_status

C = grpc.StatusCode

TOLD = [
    (C.UNAVAILABLE, "etcdserver: no leader", e.NoLeaderError, False),
    (C.UNKNOWN, "etcdserver: no leader", e.NoLeaderError, False),
    (C.UNAVAILABLE, "etcdserver: not capable", e.UnavailableError, False),
    (C.UNAVAILABLE, "etcdserver: rpc not supported for learner", e.UnavailableError, False),
    (C.RESOURCE_EXHAUSTED, "etcdserver: too many requests", e.UnavailableError, False),
    (C.UNAVAILABLE, "failed to connect to all addresses; last error: x", e.UnavailableError, False),
    (C.UNAVAILABLE, "Socket closed", e.UnavailableError, True),
    (C.UNAVAILABLE, "etcdserver: leader changed", e.UnavailableError, True),
    (C.UNAVAILABLE, "etcdserver: server stopped", e.UnavailableError, True),
    (C.UNAVAILABLE, "etcdserver: request timed out", e.DeadlineError, True),
    (C.UNKNOWN, "context deadline exceeded", e.DeadlineError, True),
    (C.DEADLINE_EXCEEDED, "Deadline Exceeded", e.DeadlineError, True),
    (C.INTERNAL, "from the client core", e.UnavailableError, True),
    (C.DATA_LOSS, "etcdserver: corrupt cluster", e.UnavailableError, True),
    (
        C.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision has been compacted",
        e.CompactedError,
        False,
    ),
    (
        C.OUT_OF_RANGE,
        "etcdserver: mvcc: required revision is a future revision",
        e.FutureRevisionError,
        False,
    ),
    (C.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", e.NoSpaceError, True),
    (C.UNAUTHENTICATED, "etcdserver: invalid auth token", e.AuthTokenError, False),
    (C.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", e.AuthTokenError, False),
    (C.INVALID_ARGUMENT, "etcdserver: user name is empty", e.AuthTokenError, False),
    (
        C.INVALID_ARGUMENT,
        "etcdserver: authentication failed, invalid user ID or password",
        e.AuthenticationError,
        False,
    ),
    (C.PERMISSION_DENIED, "etcdserver: permission denied", e.PermissionDeniedError, False),
    (C.INVALID_ARGUMENT, "etcdserver: request is too large", e.TooLargeError, False),
    (C.INVALID_ARGUMENT, "etcdserver: too many operations in txn request", e.TooLargeError, False),
    (
        C.RESOURCE_EXHAUSTED,
        "grpc: received message larger than max (3 vs. 2)",
        e.TooLargeError,
        False,
    ),
    (C.NOT_FOUND, "etcdserver: requested lease not found", e.LeaseLostError, False),
    (C.FAILED_PRECONDITION, "etcdserver: lease already exists", e.LeaseExistsError, False),
    (C.FAILED_PRECONDITION, "etcdserver: not leader", e.UnavailableError, True),
    (C.FAILED_PRECONDITION, "etcdserver: something else", e.PreconditionError, False),
    (C.INVALID_ARGUMENT, "etcdserver: key is not provided", e.InvalidRequestError, False),
]


@pytest.mark.parametrize(("code", "text", "expected", "maybe_applied"), TOLD)
def test_known_failures_have_their_class(
    code: grpc.StatusCode, text: str, expected: type[e.EtcdError], maybe_applied: bool
) -> None:
    """Code and text decide the class, and whether the write may have been done."""
    error = error_of_status(code, text, endpoint="h:1", is_write=True)
    assert type(error) is expected
    assert error.maybe_applied is maybe_applied
    assert text in str(error)
    assert "h:1" in str(error)
    assert not error_of_status(code, text).maybe_applied


@pytest.mark.parametrize(
    ("code", "text"),
    list(
        itertools.product(
            [code for code in C if code is not C.OK], ["", "never seen before", "etcdserver: new"]
        )
    ),
)
def test_unknown_failures_never_escape(code: grpc.StatusCode, text: str) -> None:
    """Whatever the code, an unfamiliar text becomes one of our errors (field report L03)."""
    error = error_of_status(code, text, is_write=True)
    definite = (
        *(e.PermissionDeniedError, e.AuthTokenError),
        *(e.InvalidRequestError, e.PreconditionError),
    )
    assert isinstance(error, e.UnavailableError) or type(error) in definite
    if isinstance(error, e.UnavailableError):
        assert error.maybe_applied


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TimeoutError(), e.DeadlineError),
        (OSError("network is unreachable"), e.UnavailableError),
        (ConnectionResetError(), e.UnavailableError),
        (asyncio.CancelledError(), e.UnavailableError),
        (grpc.aio.UsageError("Channel is closed."), e.UnavailableError),
        (RuntimeError("of the client core"), e.UnavailableError),
    ],
)
def test_other_exceptions_are_unavailable(
    raised: BaseException, expected: type[e.EtcdError]
) -> None:
    """An exception that is no gRPC status means that etcd cannot be used now (L03)."""
    error = error_of_exception(raised, endpoint="h:1", is_write=True)
    assert type(error) is expected
    assert error.maybe_applied


def test_our_own_errors_pass_unchanged() -> None:
    """What was classified once keeps its class."""
    error = e.CompactedError("gone", compact_revision=7)
    assert error_of_exception(error) is error
    assert error.compact_revision == 7
