"""Documents that are the contract's own message: an ApplyWorkloadRequest as proto JSON.

Decided here: how a tree is read into any message, strictly and with every error at once (the
library's parser stops at the first). Both name styles of proto JSON are known. Only kinds of fields
that requests have are supported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from persys_proto.control.v1 import control_pb2 as pb
from persysctl.manifest.section import Item
from persysctl.manifest.tree import MappingNode, Node, Scalar, SequenceNode, is_empty
from persysctl.suggest import nearest

__all__ = ["looks_like_request", "read_request"]

_BITS = {FieldDescriptor.CPPTYPE_INT32: 31, FieldDescriptor.CPPTYPE_INT64: 63}


def looks_like_request(node: Node) -> bool:
    """Whether a document is meant as an ApplyWorkloadRequest and not as a manifest."""
    if not isinstance(node, MappingNode):
        return False
    keys = node.entries.keys()
    return bool(keys & {"workloadId", "workload_id"}) and not keys & {"kind", "apiVersion"}


def read_request(item: Item) -> pb.ApplyWorkloadRequest:
    """Read the message; it is complete only where no problem was noted."""
    request = pb.ApplyWorkloadRequest()
    _read_message(item, request)
    return request


def _read_message(item: Item, message: Message) -> None:
    if not isinstance(item.node, MappingNode):
        item.refuse(f"must be a mapping: this is a {message.DESCRIPTOR.name}")
        return
    listed = cast("list[FieldDescriptor]", list(message.DESCRIPTOR.fields))
    fields = {field.json_name: field for field in listed}
    known = {**fields, **{field.name: field for field in listed}}
    seen: dict[str, str] = {}
    for key, node in item.node.entries.items():
        below = item.below(node, f".{key}")
        field = known.get(key)
        if field is None:
            match = nearest(key, known)
            hint = f"did you mean {match!r}?" if match else f"known here are {', '.join(fields)}"
            below.refuse(f"unknown field of {message.DESCRIPTOR.name}; {hint}")
            continue
        rival = seen.setdefault(_slot(field), key)
        if rival != key:
            below.refuse(f"{rival} is given already; only one of them can be")
        elif not is_empty(node):
            _read_field(below, message, field)


def _slot(field: FieldDescriptor) -> str:
    """What may be filled once: the field, or the oneof that it belongs to."""
    oneof = field.containing_oneof
    return f"oneof {oneof.name}" if oneof is not None else field.name


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _is_list(message: Message, field: FieldDescriptor) -> bool:
    """Asked of the value, since the descriptor's own word for it differs between releases."""
    return hasattr(getattr(message, field.name), "extend")


def _read_field(item: Item, message: Message, field: FieldDescriptor) -> None:
    if _is_map(field):
        _read_map(item, message, field)
    elif _is_list(message, field):
        _read_list(item, message, field)
    elif field.message_type is not None:
        child = getattr(message, field.name)
        child.SetInParent()
        _read_message(item, child)
    else:
        value = _scalar(item, field)
        if value is not None:
            setattr(message, field.name, value)


def _read_map(item: Item, message: Message, field: FieldDescriptor) -> None:
    if not isinstance(item.node, MappingNode):
        item.refuse("must be a mapping of names to texts")
        return
    assert field.message_type is not None  # a map field has an entry type
    value_field = field.message_type.fields_by_name["value"]
    entries = getattr(message, field.name)
    for key, node in item.node.entries.items():
        value = _scalar(item.below(node, f".{key}"), value_field)
        if value is not None:
            entries[key] = value


def _read_list(item: Item, message: Message, field: FieldDescriptor) -> None:
    if not isinstance(item.node, SequenceNode):
        item.refuse("must be a list")
        return
    values = getattr(message, field.name)
    for index, node in enumerate(item.node.items):
        below = item.below(node, f"[{index}]")
        if field.message_type is not None:
            _read_message(below, values.add())
        elif (value := _scalar(below, field)) is not None:
            values.append(value)


def _scalar(item: Item, field: FieldDescriptor) -> str | int | bool | None:
    text = item.text()
    if text is None or not isinstance(item.node, Scalar):
        return None
    readers: dict[int, Callable[[Item, str, int], str | int | bool | None]] = {
        FieldDescriptor.CPPTYPE_STRING: _string,
        FieldDescriptor.CPPTYPE_BOOL: _boolean,
        FieldDescriptor.CPPTYPE_INT32: _integer,
        FieldDescriptor.CPPTYPE_INT64: _integer,
    }
    return readers[field.cpp_type](item, text, field.cpp_type)


def _string(item: Item, text: str, _: int) -> str | None:
    if isinstance(item.node, Scalar) and not item.node.is_text:
        item.refuse(f"{text} is not a text; write it in quotes")
        return None
    return text


def _boolean(item: Item, text: str, _: int) -> bool | None:
    if isinstance(item.node, Scalar) and not item.node.is_text and text in ("true", "false"):
        return text == "true"
    item.refuse(f"{text!r} is not a truth value; write true or false, without quotes")
    return None


def _integer(item: Item, text: str, kind: int) -> int | None:
    if text in ("true", "false"):
        item.refuse(f"{text} is a truth value; a whole number is wanted")
        return None
    limit = 2 ** _BITS[kind]
    return item.integer(-limit, limit - 1)
