"""The one table from the core's errors to gRPC status codes.

Decided here: the code, and that bad input carries ``google.rpc.BadRequest`` which names every
wrong field. A text for people is always there as well. What is not in the table is a bug: the
caller learns a request id and nothing of our insides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import grpc
from attrs import frozen
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import (  # type: ignore[import-untyped]  # ships stubs but does not say so
    error_details_pb2,
    status_pb2,
)

from persys_core.model.errors import (
    FieldError,
    FrozenError,
    InvalidInputError,
    NotFoundError,
    PersysError,
    RefusedError,
    TakenError,
)
from persys_core.model.event import capped
from persys_core.model.secrets import scrubbed
from persys_core.ports.cluster_store import (
    AmbiguousCommitError,
    CommitTooLargeError,
    StoreUnavailableError,
)

__all__ = ["Answer", "BehindError", "LaterError", "NotServingError", "answer_of", "internal_answer"]

# An answer's text and details travel in headers, which many clients limit to 8 KiB in all.
_MAX_TEXT_BYTES = 2000
_MAX_FOREIGN_TEXT_BYTES = 600
_MAX_DETAILS_BYTES = 3600
_MAX_DESCRIPTION_BYTES = 400
_STATUS_DETAILS_KEY = "grpc-status-details-bin"
_AMBIGUOUS = "it is not known whether the change was stored; send the same request again"


class LaterError(PersysError):
    """The RPC is part of the contract and not of this release."""


class NotServingError(PersysError):
    """This replica is starting or stopping; another one, or this one a little later, answers."""


class BehindError(PersysError):
    """This replica has not seen the asked store revision in time."""


_CODES: tuple[tuple[type[PersysError], grpc.StatusCode], ...] = (
    (InvalidInputError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (TakenError, grpc.StatusCode.ALREADY_EXISTS),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    (FrozenError, grpc.StatusCode.UNAVAILABLE),
    (StoreUnavailableError, grpc.StatusCode.UNAVAILABLE),
    (NotServingError, grpc.StatusCode.UNAVAILABLE),
    (BehindError, grpc.StatusCode.UNAVAILABLE),
    (LaterError, grpc.StatusCode.UNIMPLEMENTED),
    (CommitTooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
)


@frozen
class Answer:
    """A status code, a text for people, and binary details for programs."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    @property
    def number(self) -> int:
        """The code's number on the wire."""
        return _number(self.code)


def answer_of(error: BaseException, secrets: Iterable[str] = ()) -> Answer | None:
    """What a caller is told of ``error``; ``None`` where it is no error that the core means."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        return None
    if isinstance(error, InvalidInputError):
        return _bad_request(code, error.errors, secrets)
    return Answer(code, _bounded(scrubbed(_text(error), secrets)))


def internal_answer(request_id: str) -> Answer:
    """What a caller is told of a bug."""
    return Answer(
        grpc.StatusCode.INTERNAL,
        f"internal error; the server's log has the details under request id {request_id}",
    )


def _text(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    match error:
        case AmbiguousCommitError():
            return f"{text}; {_AMBIGUOUS}"
        case FrozenError() if not text.startswith("scheduler degraded/recovery mode"):
            return f"scheduler degraded/recovery mode: {text}"
        case _:
            return text


def _bounded(text: str) -> str:
    """Other than ASCII takes three bytes each in a header, hence the lower bound."""
    return capped(text, _MAX_TEXT_BYTES if text.isascii() else _MAX_FOREIGN_TEXT_BYTES)


def _bad_request(
    code: grpc.StatusCode, errors: Sequence[FieldError], secrets: Iterable[str]
) -> Answer:
    """Text and details that name every wrong field, or as many as there is room for."""
    known = tuple(secrets)
    clean = [FieldError(e.field, capped(scrubbed(e.message, known), _MAX_DESCRIPTION_BYTES))
             for e in errors]  # fmt: skip
    text = _listing(clean)
    status = status_pb2.Status(code=_number(code), message=text)
    bad = error_details_pb2.BadRequest()
    for error in clean:
        bad.field_violations.add(field=error.field, description=error.message)
        if bad.ByteSize() + status.ByteSize() > _MAX_DETAILS_BYTES:
            del bad.field_violations[-1]
            break
    detail = AnyMessage()
    detail.Pack(bad)
    status.details.append(detail)
    return Answer(code, text, ((_STATUS_DETAILS_KEY, status.SerializeToString()),))


def _listing(errors: Sequence[FieldError]) -> str:
    text = "; ".join(map(str, errors))
    if len(text.encode()) <= _MAX_TEXT_BYTES and text.isascii():
        return text
    names = ", ".join(error.field for error in errors)
    return _bounded(f"{len(errors)} wrong fields, first {errors[0]}; all: {names}")


def _number(code: grpc.StatusCode) -> int:
    number: int = code.value[0]
    return number
