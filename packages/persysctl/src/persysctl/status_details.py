"""The field errors inside a refused call: google.rpc.Status with google.rpc.BadRequest.

Decided here: how the two messages are read from the trailing metadata ``grpc-status-details-bin``.
They are described in a pool of their own, so that the googleapis package is not needed and does not
clash where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

__all__ = ["STATUS_DETAILS_KEY", "FieldViolation", "field_violations"]

STATUS_DETAILS_KEY = "grpc-status-details-bin"
_BAD_REQUEST = "google.rpc.BadRequest"
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES

FieldViolation = tuple[str, str]
"""The field and what is wrong with it."""


def field_violations(metadata: Iterable[tuple[str, str | bytes]]) -> list[FieldViolation]:
    """Every field error in trailing ``metadata``; none where there is nothing readable."""
    for key, value in metadata:
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                return _read(value)
            except DecodeError:
                return []
    return []


def _read(raw: bytes) -> list[FieldViolation]:
    found: list[FieldViolation] = []
    for detail in getattr(_parse("Status", raw), "details"):  # noqa: B009 - built at run time
        if detail.type_url.endswith("/" + _BAD_REQUEST):
            violations = getattr(_parse("BadRequest", detail.value), "field_violations")  # noqa: B009
            found.extend((each.field, each.description) for each in violations)
    return found


def _parse(name: str, raw: bytes) -> Message:
    message = _types()[name]()
    message.ParseFromString(raw)
    return message


@cache
def _types() -> dict[str, type[Message]]:
    """The four message types, with the numbers of google/rpc."""
    file = descriptor_pb2.FileDescriptorProto(name="persysctl/rpc.proto", package="persysctl.rpc")
    file.syntax = "proto3"
    _add(file, "Any", ("type_url", 1, _STRING), ("value", 2, _BYTES))
    _add(file, "Status", ("message", 2, _STRING), ("details", 3, "Any"))
    _add(file, "FieldViolation", ("field", 1, _STRING), ("description", 2, _STRING))
    _add(file, "BadRequest", ("field_violations", 1, "FieldViolation"))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"persysctl.rpc.{name}"))
        for name in ("Status", "BadRequest")
    }


def _add(
    file: descriptor_pb2.FileDescriptorProto,
    name: str,
    *fields: tuple[str, int, descriptor_pb2.FieldDescriptorProto.Type.ValueType | str],
) -> None:
    message = file.message_type.add(name=name)
    for field_name, number, kind in fields:
        field = message.field.add(name=field_name, number=number)
        if isinstance(kind, str):
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".persysctl.rpc.{kind}"
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        else:
            field.type = kind
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
